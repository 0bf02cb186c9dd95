-- What a relation's objects are made from, in the database itself: docs/design/schema-changes.md. Every version of the program
-- brings its own templates and functions, and says by the digest which they are.
create table frostline.relation_template (
    name    text primary key,
    text    text not null
);

create table frostline.generator (
    digest  text not null
);
insert into frostline.generator values ('');
