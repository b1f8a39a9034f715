"""The PostgreSQL pool and the migrations."""
