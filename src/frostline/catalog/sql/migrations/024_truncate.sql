-- `frostline truncate` is a job, too. Which kinds there are is the program's to say: a list here would have to follow each of them.
alter table frostline.job drop constraint job_kind_check,
                          add constraint job_kind_check check (kind ~ '^[a-z]+$');
