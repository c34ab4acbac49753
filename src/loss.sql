/* loss: commits that were lost, as operators declared them */

CREATE TABLE idem_loss (
    declared_at timestamptz PRIMARY KEY,
    declared_by text NOT NULL,
    lost_from timestamptz NOT NULL,
    lost_to timestamptz NOT NULL,
    until timestamptz NOT NULL,
    note text
);

COMMENT ON TABLE idem_loss IS 'one row a declared loss of commits; written by idem_declare_loss() only';
COMMENT ON COLUMN idem_loss.lost_from IS 'when a lost commit could first have been made: keys not on record that occurred from then on are in doubt';
COMMENT ON COLUMN idem_loss.lost_to IS 'when a lost commit could last have been made';
COMMENT ON COLUMN idem_loss.until IS 'before this, keys not on record that come without occurred_at are in doubt as well';

SELECT pg_catalog.pg_extension_config_dump('idem_loss', '');

REVOKE ALL ON idem_loss FROM PUBLIC;

CREATE FUNCTION idem_declare_loss(lost_from timestamptz, lost_to timestamptz, until timestamptz,
    note text DEFAULT NULL) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000;

COMMENT ON FUNCTION idem_declare_loss(timestamptz, timestamptz, timestamptz, text) IS
    'an operator declares that commits between two moments may be lost: no external action in flight, and no key not on record that occurred then (before until also one without occurred_at), is granted execute any more; raises the era; returns how many are in flight; 22023; source: doc/loss.md';

REVOKE ALL ON FUNCTION idem_declare_loss(timestamptz, timestamptz, timestamptz, text) FROM PUBLIC;
