"""One message: admitted, collected, judged and decided for each tenant, answered and kept."""
