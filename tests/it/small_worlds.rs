//! Every order of events in small worlds, each with a twin that must fail.

use std::collections::BTreeSet;

use statestore_tests::worlds::{
    Beginning, Budget, Counterexample, Duplicates, Explored, Fault, Fencing, LockPhases, Locking,
    Restarting, Says, Step, WatchPhases, Watching, documented, explore, explore_copies,
};

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
fn a_watcher_knows_what_the_store_has_or_knows_of_the_gap() {
    explored("watching", explore(|| Watching::new(2, false)), 30_000);
}

#[test]
fn a_watcher_that_is_not_registered_again_is_out_of_date() {
    let found = explore(|| Watching::new(1, true)).unwrap_err();
    println!("{found:#?}");
    assert!(found.wrong.contains("but the store has"), "{found:?}");
}

/// A watch of a key with a value, over a new store.
const OVER: Beginning = Beginning {
    says: Says::Which,
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
fn a_watcher_misses_nothing_over_a_new_store_but_with_a_gap() {
    over_new_stores("a store that says which it is", OVER, 1_000);
}

#[test]
fn a_watcher_of_silent_stores_misses_nothing_but_with_a_gap() {
    over_new_stores("a silent store", Beginning { says: Says::Nothing, ..OVER }, 1_000);
}

#[test]
fn a_watcher_that_ignores_the_incarnation_misses_a_change() {
    for present in [true, false] {
        let beginning = Beginning { says: Says::TheSame, present, ..OVER };
        let found = explore(|| Restarting::new(beginning)).unwrap_err();
        println!("{found:#?}");
        assert!(found.wrong.contains("a change is missing"), "{found:?}");
    }
}

#[test]
fn a_watcher_that_renews_nothing_is_never_told_of_a_new_store() {
    for says in [Says::Which, Says::Nothing] {
        let found =
            explore(|| Restarting::new(Beginning { says, renews: false, ..OVER })).unwrap_err();
        println!("{found:#?}");
        assert!(found.wrong.contains("never told"), "{found:?}");
    }
}

/// Two contenders, and no more than what the stories below are about.
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
fn two_contend() {
    sound("locks", TWO, 5_000);
}

const LOSSY: Budget = Budget { losses: 2, releases: 0, ticks: 3, held: true, ..TWO };

#[test]
fn locks_survive_lost_messages() {
    sound("lossy locks", LOSSY, 1_000);
}

const SLEEPY: Budget = Budget { writes: 1, sleeps: 1, releases: 0, held: true, ..TWO };

#[test]
fn a_holder_that_was_asleep_writes_nothing() {
    sound("sleepy locks", SLEEPY, 1_000);
}

const HURRIED: Budget = Budget { deadlines: true, tries: 2, releases: 0, ticks: 3, ..TWO };

#[test]
fn locks_that_are_given_up_are_given_back() {
    sound("hurried locks", HURRIED, 1_000);
}

const THREE: Budget = Budget { contenders: 3, held: true, ticks: 1, ..TWO };

#[test]
fn three_contend() {
    sound("three locks", THREE, 1_000);
}

const RESTARTED: Budget = Budget { restarts: 1, ticks: 1, held: true, ..TWO };

#[test]
fn no_lock_is_renewed_over_a_new_store() {
    sound("locks over a new store", RESTARTED, 1_000);
    let begins = Budget { restarts: 1, ticks: 1, ..TWO };
    sound("locks that are taken over a new store", begins, 1_000);
}

#[test]
fn a_lock_that_ignores_which_store_answers_is_renewed_over_a_new_one() {
    caught(Fault::IgnoresStore, RESTARTED, "renewed over a new store");
}

#[test]
fn without_its_token_a_holder_that_was_asleep_writes() {
    caught(Fault::NoToken, SLEEPY, "a stale write");
}

#[test]
fn a_lease_that_is_thought_to_be_longer_has_two_holders() {
    caught(Fault::NegativeMargin, SLEEPY, "both");
}

#[test]
fn without_a_margin_a_slow_clock_has_two_holders() {
    caught(Fault::NoMargin, SLEEPY, "both");
}

#[test]
fn a_waiter_without_a_timer_waits_for_ever() {
    caught(Fault::NoTimer, LOSSY, "nobody gets the lock");
}

#[test]
fn a_lock_that_is_not_removed_is_left_behind() {
    caught(Fault::NoVdel, TWO, "left the lock behind");
}

#[test]
fn contenders_of_one_session_both_hold() {
    caught(Fault::SameSession, TWO, "both");
}

/// The steps seen are those of the table: all of them, and no other that leads to another phase.
fn assert_documented(seen: &BTreeSet<Step>, table: &BTreeSet<Step>) {
    let never: Vec<_> = table.difference(seen).collect();
    assert!(never.is_empty(), "in the table, and never seen: {never:#?}");
    let moves = |(from, _, to): &&Step| from != to;
    let secret: Vec<_> = seen.difference(table).filter(moves).collect();
    assert!(secret.is_empty(), "seen, and not in the table: {secret:#?}");
}

#[test]
fn a_watch_goes_through_the_phases_of_its_table() {
    let live = [
        "a connection",
        "SUBACK",
        "KEYNOTIFY is answered",
        "GET is answered",
        "the time of a renewal",
        "KEYNOTIFY is answered",
    ];
    let replaced = [&live[..4], &["another store answers"], &live[2..4]].concat();
    let mut stories: Vec<_> = (0..=live.len()).map(|len| &live[..len]).collect();
    stories.push(&replaced);
    let mut seen = BTreeSet::new();
    for (story, says) in stories.iter().flat_map(|story| [(story, true), (story, false)]) {
        if says || !story.contains(&"another store answers") {
            let result = explore(|| WatchPhases::new(story, says, 3));
            seen.extend(result.unwrap_or_else(|found| panic!("{found:#?}")).steps);
        }
    }
    let table = documented(include_str!("../../core/src/client/event.rs"), "pub enum WatchPhase");
    assert_documented(&seen, &table);
}

#[test]
fn a_lock_goes_through_the_states_of_its_table() {
    let seen = explore_copies(LockPhases::new(6)).unwrap_or_else(|found| panic!("{found:#?}"));
    let table = documented(include_str!("../../core/src/lock/event.rs"), "pub enum LockState");
    assert_documented(&seen.steps, &table);
}
