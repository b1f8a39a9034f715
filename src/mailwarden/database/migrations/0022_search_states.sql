-- Finds the few messages that users have released, for the search `is:released`.
CREATE INDEX quarantine_recipients_released ON quarantine_recipients (message) WHERE state = 'released';
