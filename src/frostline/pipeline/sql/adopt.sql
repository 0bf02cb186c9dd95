-- name: rows_below
select count(*) from {heap} where {condition}

-- name: skip_jobs
-- Not rolled back with its transaction, as no sequence is: numbers are only left out.
select setval('frostline.job_job_id_seq', greatest(%(last)s, s.last_value) + 1000000 + (random() * 1000000000)::bigint)
  from frostline.job_job_id_seq s
