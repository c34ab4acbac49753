-- rival_kept.sql
--      The rival's duplicate without a digest, where the parameters themselves are kept.
--
-- Equal documents have equal digests under any rule, so that neither the contract nor SHA-256 is
-- needed.  The extension takes this way too, by comparing bytes.  It helps only as long as
-- keep_params is true and nothing that does not count has changed, so the rival is measured without
-- it, and once with it.

CREATE FUNCTION rival.claim_kept(key text, params jsonb) RETURNS rival.verdict
LANGUAGE plpgsql AS $$
DECLARE
    stored_state rival.state;
    stored_params jsonb;
    stored_attempt integer;
    stored_result jsonb;
    stored_error jsonb;
    stored_channel_ref text;
    stored_result_digest bytea;
BEGIN
    SELECT a.state, a.params, a.attempt, a.result, a.error, a.channel_ref, a.result_digest
    INTO stored_state, stored_params, stored_attempt, stored_result, stored_error,
         stored_channel_ref, stored_result_digest
    FROM rival.action AS a WHERE a.key = claim_kept.key;
    IF stored_state IN ('succeeded', 'rejected') AND stored_params = params THEN
        RETURN ROW(stored_state, 0, stored_result, stored_error, NULL, stored_attempt,
                   stored_state, NULL, NULL, NULL, stored_channel_ref, NULL, NULL,
                   stored_result_digest)::rival.verdict;
    END IF;
    RETURN rival_claim_again(key, params);
END
$$;
