"""Reading PDF files: by pdfium, and from their own source."""
