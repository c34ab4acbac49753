/* retention: what is old, and how a key that was deleted is told from a new one */

CREATE TABLE idem_watermark (
    key idem_key PRIMARY KEY,
    until timestamptz NOT NULL
);

COMMENT ON TABLE idem_watermark IS 'up to when records were purged, for each tenant and name; only ever raised; a key not on record that occurred no later is expired';
COMMENT ON COLUMN idem_watermark.key IS 'tenant/operation/a of actions, tenant/consumer/e of events';

SELECT pg_catalog.pg_extension_config_dump('idem_watermark', '');

REVOKE ALL ON idem_watermark FROM PUBLIC;
