//! Exhaustive exploration of small worlds; each property has a broken variant that must fail.

use std::collections::BTreeSet;

use statestore_models::worlds::{
    Beginning, Budget, Counterexample, Duplicates, Explored, Fault, Fencing, Incarnations,
    LockPhases, Locking, Restarting, Step, WatchPhases, Watching, documented, explore,
    explore_copies,
};
use statestore_testkit::Depth;

fn explored(name: &str, result: Result<Explored, Counterexample>, least: usize) {
    let explored = result.unwrap_or_else(|found| panic!("{name}: {found:#?}"));
    println!("{name}: {explored:?}");
    assert!(explored.worlds >= least && explored.ends > 0, "{name}: only {explored:?}");
}

#[test]
fn fence_refuses_writes_of_an_earlier_holder_after_a_later_one() {
    explored("fencing", explore(|| Fencing::new(true)), 5_000);
}

#[test]
fn stale_holder_without_tokens_overwrites_its_successor() {
    let found = explore(|| Fencing::new(false)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("came after"), "{found:?}");
}

#[test]
fn duplicate_gets_the_first_reply_and_has_no_effect() {
    explored("duplicates", explore(|| Duplicates::new(16)), 1_500);
}

#[test]
fn duplicate_without_a_deduplication_cache_gets_another_reply() {
    let found = explore(|| Duplicates::new(0)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("instead of"), "{found:?}");
}

#[test]
fn watch_is_up_to_date_or_reports_a_gap() {
    let (losses, least) = Depth::of_this_run().choose((1, 2_000), (2, 30_000), (2, 30_000));
    explored("watching", explore(|| Watching::new(losses, false)), least);
}

#[test]
fn watch_without_reregistration_is_out_of_date() {
    let found = explore(|| Watching::new(1, true)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("but the store has"), "{found:?}");
}

/// A watch of an existing key over a restart of the store.
const OVER: Beginning = Beginning {
    incarnations: Incarnations::Distinct,
    renews: true,
    present: true,
    ahead: false,
    restarts: 1,
    ticks: 1,
};

fn over_new_stores(name: &str, beginning: Beginning, least: usize) {
    for (present, ahead) in [(true, true), (true, false), (false, true), (false, false)] {
        let beginning = Beginning { present, ahead, ..beginning };
        explored(name, explore(|| Restarting::new(beginning)), least);
    }
}

#[test]
fn watch_over_a_new_incarnation_misses_changes_only_with_a_gap() {
    over_new_stores("a store with an incarnation", OVER, 1_000);
}

#[test]
fn watch_without_an_incarnation_misses_changes_only_with_a_gap() {
    over_new_stores(
        "a store without an incarnation",
        Beginning { incarnations: Incarnations::Nothing, ..OVER },
        1_000,
    );
}

#[test]
fn watch_that_ignores_the_incarnation_misses_a_change() {
    for present in [true, false] {
        let beginning = Beginning { incarnations: Incarnations::Constant, present, ..OVER };
        let found = explore(|| Restarting::new(beginning)).unwrap_err();
        println!("{found:#?}");
        assert!(found.wrong.contains("a change is missing"), "{found:?}");
    }
}

#[test]
fn watch_without_renewals_never_notices_a_new_store() {
    for incarnations in [Incarnations::Distinct, Incarnations::Nothing] {
        let found = explore(|| Restarting::new(Beginning { incarnations, renews: false, ..OVER }))
            .unwrap_err();
        println!("{found:#?}");
        assert!(found.wrong.contains("never reported"), "{found:?}");
    }
}

/// Two contenders, with the smallest budget that the scenarios below need.
const TWO: Budget = Budget {
    contenders: 2,
    tries: 1,
    releases: 1,
    writes: 0,
    losses: 0,
    sleeps: 0,
    ticks: 2,
    restarts: 0,
    deadlines: false,
    held: false,
};

fn sound(name: &str, budget: Budget, least: usize) {
    explored(name, explore_copies(Locking::new(Fault::None, budget)), least);
}

fn caught(fault: Fault, budget: Budget, wrong: &str) {
    let found = explore_copies(Locking::new(fault, budget)).unwrap_err();
    println!("{fault:?}: {found:#?}");
    assert!(found.wrong.contains(wrong), "{found:?}");
}

#[test]
fn two_contenders_never_hold_a_lock_together() {
    sound("locks", TWO, 5_000);
}

const LOSSY: Budget = Budget { losses: 2, releases: 0, ticks: 3, held: true, ..TWO };

#[test]
fn locks_are_exclusive_despite_lost_messages() {
    sound("lossy locks", LOSSY, 1_000);
}

const SLEEPY: Budget = Budget { writes: 1, sleeps: 1, releases: 0, held: true, ..TWO };

#[test]
fn holder_that_slept_past_its_lease_cannot_write() {
    sound("sleepy locks", SLEEPY, 1_000);
}

const HURRIED: Budget = Budget { deadlines: true, tries: 2, releases: 0, ticks: 3, ..TWO };

#[test]
fn abandoned_acquisitions_release_the_lock() {
    sound("hurried locks", HURRIED, 1_000);
}

const THREE: Budget = Budget { contenders: 3, held: true, ticks: 1, ..TWO };

#[test]
fn three_contenders_never_hold_a_lock_together() {
    sound("three locks", THREE, 1_000);
}

const RESTARTED: Budget = Budget { restarts: 1, ticks: 1, held: true, ..TWO };

#[test]
fn lock_is_not_renewed_over_a_new_incarnation() {
    sound("locks over a new store", RESTARTED, 1_000);
    let begins = Budget { restarts: 1, ticks: 1, ..TWO };
    sound("locks acquired over a new store", begins, 1_000);
}

#[test]
fn lock_that_ignores_the_incarnation_is_renewed_over_a_new_store() {
    caught(Fault::IgnoresStore, RESTARTED, "renewed over a new store");
}

#[test]
fn holder_that_slept_writes_without_fencing_tokens() {
    caught(Fault::NoToken, SLEEPY, "a stale write");
}

#[test]
fn negative_margin_allows_two_holders() {
    caught(Fault::NegativeMargin, SLEEPY, "both");
}

#[test]
fn missing_margin_allows_two_holders_with_a_slow_clock() {
    caught(Fault::NoMargin, SLEEPY, "both");
}

#[test]
fn waiter_without_a_timer_waits_forever() {
    caught(Fault::NoTimer, LOSSY, "no contender gets the lock");
}

#[test]
fn lock_without_vdel_is_left_behind() {
    caught(Fault::NoVdel, TWO, "left the lock behind");
}

#[test]
fn contenders_with_one_session_id_both_hold_the_lock() {
    caught(Fault::SameSession, TWO, "both");
}

/// Checks that all steps of the table occur, and that no other step changes the phase.
fn assert_documented(seen: &BTreeSet<Step>, table: &BTreeSet<Step>) {
    let never: Vec<_> = table.difference(seen).collect();
    assert!(never.is_empty(), "in the table, but never taken: {never:#?}");
    let moves = |(from, _, to): &&Step| from != to;
    let secret: Vec<_> = seen.difference(table).filter(moves).collect();
    assert!(secret.is_empty(), "taken, but not in the table: {secret:#?}");
}

#[test]
fn watch_takes_exactly_the_documented_transitions() {
    let live = [
        "a connection",
        "SUBACK",
        "KEYNOTIFY gets a response",
        "GET gets a response",
        "the time of a renewal",
        "KEYNOTIFY gets a response",
    ];
    let replaced = [&live[..4], &["a new incarnation responds"], &live[2..4]].concat();
    let mut stories: Vec<_> = (0..=live.len()).map(|len| &live[..len]).collect();
    stories.push(&replaced);
    let mut seen = BTreeSet::new();
    for (story, incarnations) in stories.iter().flat_map(|story| [(story, true), (story, false)]) {
        if incarnations || !story.contains(&"a new incarnation responds") {
            let result = explore(|| WatchPhases::new(story, incarnations, 3));
            seen.extend(result.unwrap_or_else(|found| panic!("{found:#?}")).steps);
        }
    }
    let table = documented(include_str!("../../core/src/client/event.rs"), "pub enum WatchPhase");
    assert_documented(&seen, &table);
}

#[test]
fn lock_takes_exactly_the_documented_transitions() {
    let seen = explore_copies(LockPhases::new(6)).unwrap_or_else(|found| panic!("{found:#?}"));
    let table = documented(include_str!("../../core/src/lock/event.rs"), "pub enum LockState");
    assert_documented(&seen.steps, &table);
}
