-- Users of the console: their credentials, sessions and setup links.

-- Row: a user.
-- Written by: setup links, administrators, OpenID Connect at the first login, and the user's own settings.
-- Deleted by: nothing; a user is disabled.
CREATE TABLE users (
    uid uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    email text NOT NULL DEFAULT '',
    role text NOT NULL CHECK (role IN ('deployment-administrator', 'tenant-administrator', 'analyst', 'auditor')),
    tenants uuid[] NOT NULL DEFAULT '{}', -- empty: the deployment
    password text, -- argon2id; NULL: cannot log in by password
    totp bytea, -- the secret, sealed with a key that the database does not have
    totp_step bigint NOT NULL DEFAULT 0, -- the last step that was accepted: none is accepted twice
    issuer text, -- who vouches for a user of OpenID Connect, and by which name
    subject text,
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    disabled timestamptz,
    last_login timestamptz,
    hidden_steps text[] NOT NULL DEFAULT '{}', -- the first steps that the user has hidden from the checklist
    time_zone text NOT NULL DEFAULT '', -- in which the console shows times; empty: that of the browser
    language text NOT NULL DEFAULT '', -- of the console; empty: that of the browser
    CHECK ((issuer IS NULL) = (subject IS NULL)),
    CHECK (role <> 'deployment-administrator' OR cardinality(tenants) = 0),
    CHECK (role <> 'tenant-administrator' OR cardinality(tenants) > 0)
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
CREATE UNIQUE INDEX users_subject ON users (issuer, subject) WHERE issuer IS NOT NULL;

-- Row: a passkey of a user.
-- Written by: the user; abby notes its use.
-- Deleted by: the user, and a setup link that renews the user's credentials.
CREATE TABLE passkeys (
    credential bytea PRIMARY KEY,
    passkey_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- how pages name it
    user_id uuid NOT NULL REFERENCES users (uid) ON DELETE CASCADE,
    name text NOT NULL,
    public_key bytea NOT NULL,
    sign_count bigint NOT NULL,
    created timestamptz NOT NULL DEFAULT now(),
    last_used timestamptz
);
CREATE INDEX passkeys_user_id ON passkeys (user_id);

-- Row: a recovery code of a user; each lets the user in once.
-- Written by: the user who draws new ones; abby notes its use.
-- Deleted by: the next draw.
CREATE TABLE recovery_codes (
    user_id uuid NOT NULL REFERENCES users (uid) ON DELETE CASCADE,
    digest bytea NOT NULL, -- HMAC-SHA-256 with the server's pepper
    used timestamptz,
    PRIMARY KEY (user_id, digest)
);

-- Row: a session. Without a user it is a visit that has not logged in, with a CSRF token and the state of the login, or
-- the mark that the cookie of a visit was used.
-- Written by: abby, at a step of a login, and at the login.
-- Deleted by: the login that follows it, the logout, the user for other devices, an administrator who changes or
-- disables the user, too many later visits from the same address, and abby after the end.
CREATE TABLE sessions (
    digest bytea PRIMARY KEY, -- id of the pepper key and SHA-256 of the cookie's value, which is not stored
    session_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- how pages name it
    user_id uuid REFERENCES users (uid) ON DELETE CASCADE,
    method text NOT NULL DEFAULT '', -- of the login: password, passkey, OpenID Connect
    csrf text NOT NULL,
    notes bytea NOT NULL DEFAULT '', -- the state of a login or setup in progress, sealed
    address inet,
    agent text NOT NULL DEFAULT '',
    created timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now(),
    expires timestamptz NOT NULL
);
CREATE INDEX sessions_user_id ON sessions (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX sessions_visits ON sessions (address, created) WHERE user_id IS NULL;
CREATE INDEX sessions_expires ON sessions (expires);

-- Row: a link by which a user sets credentials: the first of the deployment, an invited one, or one who lost them.
-- Written by: the command, and administrators in the console.
-- Deleted by: its use, an administrator who withdraws it, a newer link or a new password of the same user, a change of
-- rights of that user or of the user who made it, and the next link after its end.
CREATE TABLE setup_links (
    digest bytea PRIMARY KEY, -- id of the pepper key and SHA-256 of the link's token, which is not stored
    link_id uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- how pages name it
    purpose text NOT NULL CHECK (purpose IN ('first-run', 'invite', 'renew')),
    user_id uuid REFERENCES users (uid) ON DELETE CASCADE, -- whom it lets in again
    email text NOT NULL DEFAULT '',
    role text NOT NULL,
    tenants uuid[] NOT NULL DEFAULT '{}',
    created timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires timestamptz NOT NULL,
    CHECK ((purpose = 'renew') = (user_id IS NOT NULL))
);

-- Row: login attempts with a name or from an address, of all abby processes together.
-- Written by: `take_attempt` below.
-- Deleted by: abby, at a login or two hours after the last attempt.
CREATE TABLE login_attempts (
    subject text COLLATE "C" PRIMARY KEY,
    attempts integer NOT NULL,
    last timestamptz NOT NULL,
    blocked_until timestamptz NOT NULL
);
CREATE INDEX login_attempts_last ON login_attempts (last);

-- Counts an attempt before it is made, so that many at once gain nothing. Returns the seconds to wait: 0 lets it be
-- made. From the `free`th on each attempt doubles the wait, up to `longest` seconds; an hour of quiet forgets them.
CREATE FUNCTION take_attempt(wanted text, free integer, longest integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    kept login_attempts;
    waits double precision;
BEGIN
    INSERT INTO login_attempts VALUES (wanted, 0, clock_timestamp(), '-infinity') ON CONFLICT DO NOTHING;
    SELECT * INTO kept FROM login_attempts WHERE subject = wanted FOR UPDATE;
    IF kept.blocked_until > clock_timestamp() THEN
        RETURN greatest(1, ceil(extract(epoch FROM kept.blocked_until - clock_timestamp())));
    ELSIF kept.last < clock_timestamp() - interval '1 hour' THEN
        kept.attempts := 0;
    END IF;
    kept.attempts := kept.attempts + 1;
    waits := CASE WHEN kept.attempts < free THEN 0 ELSE least(longest, 2.0 ^ least(kept.attempts - free, 20)) END;
    UPDATE login_attempts SET attempts = kept.attempts, last = clock_timestamp(),
        blocked_until = clock_timestamp() + make_interval(secs => waits)
        WHERE subject = wanted;
    RETURN 0;
END
$$;
