-- name: no_time_limits
select set_config(name, '0', false) from pg_settings
 where name in ('idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout')

-- name: begin
begin isolation level repeatable read read only

-- name: export
select pg_export_snapshot()

-- name: end
rollback
