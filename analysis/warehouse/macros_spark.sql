/*
The macros of sql/macros.sql that Spark says in words of its own. The select after each macro shows its meaning.
*/

-- Spark's DIV gives 64 bits, and the work of a block of the main chain needs more.
create macro work_of(bits) as
cast(floor(
    cast(pow(2.0D, 280 - 8 * shiftright(bits, 24)) as decimal(38, 0)) / nullif(bits & 8388607, 0)
) as decimal(38, 0));
-- Test
select work_of(486604799) = 4295032833 and work_of(545259519) = 2;

-- A function in Python: no cast of Spark keeps bytes that are not UTF-8.
create macro printable(bytes) as
printable_bytes(bytes);
-- Test
select printable(cast('a' as binary)) = 'a';
