-- contracts.sql
--      The operations and consumers that the measurement uses, defined on both sides.

SELECT idem_define_operation('PAY', effect => 'local');
SELECT idem_define_operation('SEND', effect => 'external');
SELECT idem_define_operation('LEAN', effect => 'local', keep_params => false);
SELECT idem_define_operation('PART', effect => 'local', digest_include => '{/amount,/to/account}');
SELECT idem_define_operation('LOOSE', effect => 'local', digest_exclude => '{/trace,/meta/sent}');

INSERT INTO rival.contract (operation, revision, effect, channel, digest_include, digest_exclude)
VALUES ('PAY', 1, 'local', 'PAY', NULL, NULL),
       ('SEND', 1, 'external', 'SEND', NULL, NULL),
       ('PART', 1, 'local', 'PART', '{/amount,/to/account}', NULL),
       ('LOOSE', 1, 'local', 'LOOSE', NULL, '{/trace,/meta/sent}');

INSERT INTO rival.contract (operation, revision, effect, channel, keep_params)
VALUES ('LEAN', 1, 'local', 'LEAN', false);

-- without it the planner takes a one-page table for ten pages
ANALYZE rival.contract;

SELECT idem_define_consumer('stock');
SELECT idem_define_consumer('lean', keep_params => false);
SELECT idem_define_consumer('part', digest_include => '{/amount,/to/account}');
SELECT idem_define_consumer('loose', digest_exclude => '{/trace,/meta/sent}');

INSERT INTO rival.consumer (consumer, revision, digest_include, digest_exclude, keep_params)
VALUES ('stock', 1, NULL, NULL, true),
       ('lean', 1, NULL, NULL, false),
       ('part', 1, '{/amount,/to/account}', NULL, true),
       ('loose', 1, NULL, '{/trace,/meta/sent}', true);

-- without it the planner takes a one-page table for ten pages
ANALYZE rival.consumer;
