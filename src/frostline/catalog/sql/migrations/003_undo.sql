-- Lowering the frost line again: undo and thaw.

alter table frostline.job drop constraint job_kind_check;
alter table frostline.job add constraint job_kind_check check (kind in ('archive', 'fold', 'undo', 'thaw'));

-- Archive does not go past `held_from` (an axis value). `lowered_xid` is the transaction that lowered the line last:
-- whoever has an older snapshot may still need the lake's foreign tables above it.
alter table frostline.managed_table add column held_from bigint, add column lowered_xid xid8;
