//! Seeded simulation: clients, a store and a bad network in simulated time, against every checker; worlds that are
//! broken on purpose, which a checker must notice; and that runs replay.

use std::collections::BTreeMap;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request, WatchEvent};
use statestore_proto::message::{Command, Refusal, Reply, ServiceError};
use statestore_proto::mqtt::{ReasonCode, Transmit};
use statestore_proto::time::Now;
use statestore_tests::sim::check::watches::Allowance;
use statestore_tests::sim::listings::{self, ScanReport, ScanTwin};
use statestore_tests::sim::locks::{self, LockTrouble, LockTwin};
use statestore_tests::sim::{self, Check, Delivery, Effect, Mix, Report, Twin, What};

/// Seeds of each mix.
const SEEDS: u64 = 150;

/// Runs as many seeds of a mix as the test command has time for.
fn sound(mix: Mix) {
    if let Err(report) = sim::run_all(mix.seeds(SEEDS), sim::STEPS) {
        panic!("{report}");
    }
}

#[test]
fn nothing_goes_wrong() {
    sound(Mix::Faultless);
}

#[test]
fn the_network_is_bad() {
    sound(Mix::InOrder);
}

#[test]
fn messages_overtake_each_other() {
    sound(Mix::Reordered);
}

#[test]
fn the_network_is_very_bad() {
    sound(Mix::Heavy);
}

#[test]
fn the_store_loses_its_connection() {
    sound(Mix::StoreLink);
}

/// More than of the others: what survives, and in which parts it was written, has more ways to go wrong.
#[test]
fn a_durable_store_crashes() {
    if let Err(report) = sim::run_all(Mix::Durable.seeds(2_000), sim::STEPS) {
        panic!("{report}");
    }
}

#[test]
fn everything_is_full() {
    sound(Mix::Quota);
}

#[test]
fn clocks_step_by_minutes() {
    sound(Mix::ClockSteps);
}

#[test]
fn somebody_stands_still() {
    sound(Mix::Pauses);
}

#[test]
fn another_store_takes_over() {
    sound(Mix::Takeover);
}

#[test]
fn the_broker_hosts_the_store() {
    sound(Mix::Direct);
}

#[test]
fn hostile_clients_besiege_the_broker() {
    let (mut evicted, mut asked, mut answered) = (0, 0, 0);
    for seed in Mix::Siege.seeds(SEEDS / 2) {
        let report = sim::run(seed, sim::STEPS);
        assert!(report.violations.is_empty(), "{report}");
        evicted += report.evicted;
        asked += report.history.ops.len();
        let outcomes = report.history.ops.iter().filter_map(|op| op.completed.as_ref());
        let replied = outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Replied { .. }));
        answered += replied.count();
    }
    println!("{evicted} evicted, {answered} of {asked} answered");
    assert!(evicted > SEEDS, "{evicted}");
    assert!(answered * 10 > asked * 8, "{answered} of {asked}");
}

/// A number from the environment: how a person says which runs to look at.
fn asked(name: &str, otherwise: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a person asks")]
    let text = std::env::var(name);
    let number = text.map_or(Ok(otherwise), |text| text.parse());
    number.unwrap_or_else(|_| panic!("{name} is a number"))
}

/// Runs seeds that nobody has run before, of all mixes in turn, of locks and of listings:
/// `STATESTORE_SEEDS_FROM=… STATESTORE_SEEDS=… cargo test -p statestore-tests --test it sim::a_range_of_seeds`.
#[test]
fn a_range_of_seeds() {
    let from = asked("STATESTORE_SEEDS_FROM", 1_000_000);
    let seeds = from..from + asked("STATESTORE_SEEDS", 22);
    if let Err(report) = sim::run_all(seeds.clone(), sim::STEPS) {
        panic!("{report}");
    }
    for seed in seeds {
        assert_eq!(locks::run(seed, LockTwin::Sound).wrong, None, "seed {seed}");
        assert_eq!(listings::run(seed, ScanTwin::Sound).wrong, None, "seed {seed}");
    }
}

#[test]
fn long_runs_are_sound() {
    let steps = 10 * sim::STEPS;
    match sim::run_all(0..20, steps) {
        Ok(total) => assert_eq!(total, 20 * u64::from(steps)),
        Err(report) => panic!("{report}"),
    }
}

/// A checker proves nothing when what it checks never happens.
#[test]
fn runs_meet_everything() {
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..200 {
        for name in names(&sim::run(seed, sim::STEPS)) {
            *met.entry(name).or_default() += 1;
        }
    }
    let expected = [
        "Done",
        "NotApplied",
        "Value",
        "Absent",
        "Removed",
        "NothingRemoved",
        "TimestampSkew",
        "FencingTokenRequired",
        "FencingTokenLower",
        "TimedOut",
        "Unknown",
        "Cancelled",
        "Rejected",
        "Gap",
        "Ended",
        "Expired",
        "Duplicate",
    ];
    for name in expected {
        assert!(met.get(name).is_some_and(|count| *count >= 2), "{name} is too rare: {met:?}");
    }
    // All tokens are versions of this store or of one that it follows, which refuses none of them whatever its wall clock says.
    assert!(!met.contains_key("FencingTokenSkew"), "{met:?}");
}

/// What happened in a run, by name.
fn names(report: &Report) -> Vec<String> {
    let first_word = |text: String| {
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Replied { reply: Reply::Error(ServiceError::Known(refusal)), .. } => {
            first_word(format!("{:?}", *refusal as Refusal))
        }
        Outcome::Replied { reply, .. } => first_word(format!("{reply:?}")),
        other => first_word(format!("{other:?}")),
    };
    let outcomes = report.history.ops.iter().filter_map(|op| op.completed.as_ref());
    let watched = report.history.watches.iter().flat_map(|watched| &watched.notes);
    let told = watched.filter_map(|note| match &note.what {
        What::Told(event @ (WatchEvent::Gap | WatchEvent::Ended(_))) => {
            Some(first_word(format!("{event:?}")))
        }
        _ => None,
    });
    let expired = report.truth.log().iter().any(|change| change.effect == Effect::Expired);
    let doubled = report.wire.exchanges.values().any(|exchange| exchange.deliveries > 1);
    let mut names: Vec<String> = outcomes.map(|(_, known)| outcome(known)).chain(told).collect();
    names.extend(expired.then(|| "Expired".into()));
    names.extend(doubled.then(|| "Duplicate".into()));
    names.sort();
    names.dedup();
    names
}

#[test]
fn equal_seeds_give_equal_runs() {
    let digests = |seed| (0..2).map(|_| sim::run(seed, sim::STEPS).digest).collect::<Vec<u64>>();
    let mut all: Vec<u64> = Vec::new();
    for seed in 0..50 {
        let [first, second] = digests(seed)[..] else { panic!("two runs have two digests") };
        assert_eq!(first, second, "seed {seed} does not replay");
        all.push(first);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 50, "different seeds give different runs");
}

/// Runs the seed of a failure again: `STATESTORE_SEED=… cargo test -p statestore-tests --test it sim::replay`.
#[test]
fn replay() {
    let seed = asked("STATESTORE_SEED", 0);
    let report = sim::run(seed, sim::STEPS);
    assert!(report.violations.is_empty(), "{report}");
    println!("seed {seed}, {:?}: all is well", report.scenario);
}

#[test]
fn a_report_says_how_to_replay_it() {
    let seed = caught(Twin::StaleReads, Mix::Faultless, Check::Linear, 5);
    let text = sim::run_twin(seed, sim::STEPS, Twin::StaleReads).to_string();
    assert!(text.contains(&format!("STATESTORE_SEED={seed} cargo test")), "{text}");
    assert!(text.contains("sim::replay"), "{text}");
}

/// The first seed of a mix whose broken world is caught by this check.
fn caught(twin: Twin, mix: Mix, check: Check, seeds: u64) -> u64 {
    let found =
        mix.seeds(seeds).find(|seed| sim::run_twin(*seed, sim::STEPS, twin).is_caught_by(check));
    found.unwrap_or_else(|| panic!("{check:?} does not notice {twin:?} within {seeds} seeds"))
}

#[test]
fn an_open_fence_is_noticed() {
    caught(Twin::OpenFence, Mix::Faultless, Check::Fencing, 10);
    caught(Twin::OpenFence, Mix::InOrder, Check::Fencing, 20);
    caught(Twin::OpenFence, Mix::InOrder, Check::Linear, 20);
}

#[test]
fn a_store_that_forgets_its_answers_is_noticed() {
    caught(Twin::NoReplyCache, Mix::InOrder, Check::Effects, 10);
    caught(Twin::NoReplyCache, Mix::Heavy, Check::Effects, 5);
    caught(Twin::NoReplyCache, Mix::Heavy, Check::Store, 5);
}

#[test]
fn a_client_that_does_not_register_again_is_noticed() {
    caught(Twin::NoReregistration, Mix::InOrder, Check::Watches, 10);
    caught(Twin::NoReregistration, Mix::Reordered, Check::Watches, 10);
    caught(Twin::NoReregistration, Mix::Heavy, Check::Watches, 10);
    caught(Twin::NoReregistration, Mix::Durable, Check::Watches, 10);
    caught(Twin::NoReregistration, Mix::Takeover, Check::Watches, 10);
}

#[test]
fn a_client_that_does_not_notice_another_store_is_noticed() {
    caught(Twin::NoIncarnation, Mix::Durable, Check::Watches, 10);
    caught(Twin::NoIncarnation, Mix::Takeover, Check::Watches, 10);
}

#[test]
fn stale_reads_are_noticed() {
    for mix in Mix::ALL {
        caught(Twin::StaleReads, mix, Check::Linear, 10);
    }
}

#[test]
fn what_is_said_before_it_is_persisted_is_noticed() {
    caught(Twin::EarlyRelease, Mix::Durable, Check::Linear, 20);
    caught(Twin::EarlyRelease, Mix::Durable, Check::Watches, 40);
    caught(Twin::EarlyRelease, Mix::Durable, Check::Versions, 40);
}

#[test]
fn a_journal_that_forgets_is_noticed() {
    caught(Twin::ForgetsAnswers, Mix::Durable, Check::Effects, 20);
    caught(Twin::ForgetsAnswers, Mix::Durable, Check::Store, 20);
    caught(Twin::ForgetsVersions, Mix::Durable, Check::Store, 150);
}

#[test]
fn limits_that_are_not_kept_are_noticed() {
    caught(Twin::NoLimits, Mix::Quota, Check::Store, 10);
    caught(Twin::NeverAsks, Mix::Quota, Check::Store, 10);
}

#[test]
fn versions_that_go_back_are_noticed() {
    caught(Twin::ClockGoesBack, Mix::ClockSteps, Check::Versions, 10);
    caught(Twin::ClockGoesBack, Mix::ClockSteps, Check::Watches, 10);
}

#[test]
fn what_a_sleeper_does_late_is_noticed() {
    caught(Twin::OpenFence, Mix::Pauses, Check::Fencing, 10);
    caught(Twin::NoArrival, Mix::Pauses, Check::Store, 10);
}

#[test]
fn a_successor_that_knows_nothing_is_noticed() {
    caught(Twin::Amnesia, Mix::Takeover, Check::Linear, 10);
    caught(Twin::Amnesia, Mix::Takeover, Check::Watches, 10);
}

#[test]
fn notifications_out_of_order_are_noticed() {
    caught(Twin::LateNotifications, Mix::Direct, Check::Watches, 10);
    let after_stop = |seed: &u64| {
        let report = sim::run_twin(*seed, sim::STEPS, Twin::LateNotifications);
        report.violations.iter().any(|violation| violation.text.contains("answer to its STOP"))
    };
    assert!(Mix::Direct.seeds(20).any(|seed| after_stop(&seed)));
}

#[test]
fn a_broker_without_walls_is_noticed() {
    caught(Twin::NoBudget, Mix::Siege, Check::Broker, 10);
    caught(Twin::NoRules, Mix::Siege, Check::Linear, 10);
}

/// What is promised without reordering is more than can be kept with it. Should this fail, promise more.
#[test]
fn the_exception_for_overtaken_replies_is_needed() {
    let stricter = |seed| {
        let Report { history, truth, scenario, .. } = sim::run(seed, sim::STEPS);
        let allowance = Allowance { delivery: Delivery::InOrder, ..Allowance::of(&scenario) };
        sim::check::watches::check(&history, &truth, allowance)
    };
    assert!(Mix::Reordered.seeds(400).any(|seed| stricter(seed).is_err()));
}

/// The broker may have passed on what was sent before the connection was lost.
#[test]
fn a_request_sent_twice_in_one_session_is_not_said_to_be_rejected() {
    let config = ClientConfig::new("c", [0; 8]).expect("a plain id").keeps_session(true);
    let (mut client, now) = (Client::new(config), Now::default());
    let command = Command::Del { key: Bytes::from_static(b"k") };
    let id = client.submit(now, Request::new(command)).expect("there is room");
    let connect = |client: &mut Client| {
        client.handle_connected(now, true);
        let Some(Transmit::Subscribe { token, .. }) = client.poll_transmit() else {
            panic!("replies are subscribed first")
        };
        client.handle_subscribed(now, token, ReasonCode::GRANTED_QOS_1);
        assert_eq!(client.poll_event(), Some(Event::Ready));
    };
    connect(&mut client);
    let Some(Transmit::Publish(request)) = client.poll_transmit() else {
        panic!("then requests are sent")
    };
    client.handle_disconnected(now);
    connect(&mut client);
    let token = request.token.expect("requests want to hear of their PUBACK");
    client.handle_published(now, token, ReasonCode::NO_MATCHING_SUBSCRIBERS);
    assert_eq!(client.poll_event(), Some(Event::Completed { id, outcome: Outcome::Unknown }));
}

#[test]
fn locks_exclude_fence_and_come_free() {
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let report = locks::run(seed, LockTwin::Sound);
        assert_eq!(report.wrong, None, "seed {seed}");
        for (name, count) in report.events {
            *met.entry(name).or_default() += count;
        }
    }
    let expected = [
        "Acquired",
        "Renewed",
        "Lost",
        "Expired",
        "Released true",
        "Released false",
        "GaveUp Taken",
        "GaveUp Deadline",
        "GaveUp Cancelled",
        "GaveUp NoAnswer",
        "HolderChanged",
    ];
    for name in expected {
        assert!(met.get(name).is_some_and(|count| *count >= 20), "{name} is too rare: {met:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs_of_locks() {
    for seed in 0..50 {
        let events = || locks::run(seed, LockTwin::Sound).events;
        assert_eq!(events(), events(), "seed {seed}");
    }
}

#[test]
fn broken_locks_are_noticed() {
    let paused = (0..400).map(|seed| locks::run(seed, LockTwin::NoToken));
    let paused = paused.filter(|report| report.trouble == LockTrouble::Pauses);
    let caught = paused.filter(|report| report.wrong.is_some()).count();
    assert!(caught >= 5, "a holder that stood still is noticed {caught} times only");
    for (twin, wrong) in [
        (LockTwin::NoToken, "came after"),
        (LockTwin::NoClock, "hold the lock"),
        (LockTwin::SameSession, "hold the lock"),
        (LockTwin::NoVdel, "left the lock behind"),
    ] {
        let found = (0..300).filter_map(|seed| locks::run(seed, twin).wrong);
        let found: Vec<String> = found.filter(|found| found.contains(wrong)).collect();
        assert!(found.len() >= 5, "{twin:?} is noticed {} times only", found.len());
    }
}

#[test]
fn keys_that_stay_are_listed_once() {
    let mut met = ScanReport::default();
    for seed in 0..250 {
        let report = listings::run(seed, ScanTwin::Sound);
        assert_eq!(report.wrong, None, "seed {seed}");
        met.listings += report.listings;
        met.pages += report.pages;
        met.empty += report.empty;
        met.again += report.again;
        met.crashes += report.crashes;
    }
    println!("{met:?}");
    assert!(met.listings > 2_500 && met.pages > 3 * met.listings, "{met:?}");
    assert!(met.empty > 500 && met.again > 2_000 && met.crashes > 150, "{met:?}");
}

#[test]
fn broken_listings_are_noticed() {
    for (twin, wrong) in [
        (ScanTwin::LostKey, "is missing"),
        (ScanTwin::OldToken, "is listed twice"),
        (ScanTwin::BeginsAnew, "is listed twice"),
        (ScanTwin::Ghost, "was not there"),
    ] {
        let found = (0..100).filter_map(|seed| listings::run(seed, twin).wrong);
        let found: Vec<String> = found.filter(|found| found.contains(wrong)).collect();
        assert!(found.len() >= 5, "{twin:?} is noticed {} times only", found.len());
    }
}
