/*
summary = "What the results rest on: versions, commit, dataset, nodes and sessions, chain, rules, window."
method = """
Facts of the build, then a row per node and session of the collector, then the window of blocks. Builds with equal
rows here have equal rows, digits and order in every mart. dataset_hash is over the rows of the raw tables, whatever the
files they lie in: the SHA-256 of a line per table with its name, number of rows and the sum of the rows' 64-bit hashes.
sources_hash is the SHA-256 of our Python and SQL files. Folder and time of the build are in the table build_log.
"""
grain = ["key"]
[columns]
key = "VARCHAR  name of the fact; unique"
value = "VARCHAR  value of the fact as text; times in UTC"
*/
with

sessions as (
    select
        'session ' || node || ' ' || session as key,
        format(
            '{}, collector {}, started {}, chain {}, tip height {}, {} waiting',
            subversion, collector_version, strftime(started_at, '%Y-%m-%d %H:%M:%S'),
            chain, tip_height, n_mempool_at_start
        ) as value
    from stg_nodes
),

window_facts as (
    select
        count(*) as n_blocks,
        count(*) filter (where not is_active) as n_stale_blocks,
        count(arrived_at) as n_arrived_blocks,
        min(height) as first_height,
        max(height) as last_height,
        min(header_time) as first_header_time,
        max(header_time) as last_header_time
    from chain_blocks
),

window_rows as (
    select
        unnest(
            [
                struct_pack(key := 'blocks', value := cast(n_blocks as varchar)),
                struct_pack(key := 'blocks stale', value := cast(n_stale_blocks as varchar)),
                struct_pack(key := 'blocks seen arriving', value := cast(n_arrived_blocks as varchar)),
                struct_pack(key := 'height first', value := cast(first_height as varchar)),
                struct_pack(key := 'height last', value := cast(last_height as varchar)),
                struct_pack(
                    key := 'header time first', value := strftime(first_header_time, '%Y-%m-%d %H:%M:%S')
                ),
                struct_pack(key := 'header time last', value := strftime(last_header_time, '%Y-%m-%d %H:%M:%S'))
            ],
            recursive := true
        )
    from window_facts
)

select * from build_facts
union all
select * from sessions
union all
select * from window_rows
order by key
