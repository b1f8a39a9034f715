"""Reading links: their targets, redirects, hosts, brands and confusable characters."""
