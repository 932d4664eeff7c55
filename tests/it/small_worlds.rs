//! Every order of events in small worlds, each with a twin that must fail.

use statestore_tests::worlds::{Counterexample, Duplicates, Explored, Fencing, Watching, explore};

fn explored(name: &str, result: Result<Explored, Counterexample>, least: usize) {
    let explored = result.unwrap_or_else(|found| panic!("{name}: {found:#?}"));
    println!("{name}: {explored:?}");
    assert!(explored.worlds >= least && explored.ends > 0, "{name}: only {explored:?}");
}

#[test]
fn no_write_of_an_earlier_holder_is_accepted_after_one_of_a_later() {
    explored("fencing", explore(|| Fencing::new(true)), 5_000);
}

#[test]
fn without_tokens_a_zombie_overwrites_its_successor() {
    let found = explore(|| Fencing::new(false)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("came after"), "{found:?}");
}

#[test]
fn a_duplicate_has_no_effect_and_the_first_answer() {
    explored("duplicates", explore(|| Duplicates::new(16)), 1_500);
}

#[test]
fn without_a_cache_a_duplicate_is_answered_otherwise() {
    let found = explore(|| Duplicates::new(0)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("instead of"), "{found:?}");
}

#[test]
fn an_observer_knows_what_the_store_has_or_knows_of_the_gap() {
    explored("watching", explore(|| Watching::new(2, false)), 30_000);
}

#[test]
fn an_observer_that_is_not_registered_again_is_out_of_date() {
    let found = explore(|| Watching::new(1, true)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("but the store has"), "{found:?}");
}
