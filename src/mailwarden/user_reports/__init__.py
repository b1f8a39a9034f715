"""Reports of users, whole: the API, mails and mailboxes, cases and answers, training."""
