//! Shares of the deduplication cache: which response is evicted when the cache is full.

use proptest::prelude::*;
use statestore_models::machines::request::StoreRequest;
use statestore_proto::limits::StoreLimits;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::Condition;
use statestore_proto::store::{Durability, Record, StoreConfig};

use super::duplicates::{persisted, restarted};
use super::{OK, Rig, del, set, set_if, stop};

/// A request that a second execution would answer differently.
fn take_once(rig: &mut Rig, client: &str, disk: &mut Vec<Record>) -> StoreRequest {
    let key = format!("{client}-{}", rig.number);
    let mut request = rig.request(client, &set_if(&key, "v", Condition::IfAbsent, 0));
    request.correlation = Some(key.into_bytes());
    assert_eq!(persisted(rig, &request, disk), OK);
    request
}

type Leave = fn(Rig, &[Record], StoreLimits) -> Rig;

/// The ways in which a client becomes absent.
fn absences() -> [Leave; 2] {
    [
        |mut rig, _, _| {
            rig.store.handle(rig.now(), Input::ClientGone("gone"));
            rig
        },
        |_, disk, limits| restarted(disk, limits),
    ]
}

/// A DEL of this client, which belongs to this user, after which the client is gone. A newer value
/// follows.
fn old_del_and_newer_value(rig: &mut Rig, disk: &mut Vec<Record>) -> [StoreRequest; 2] {
    let requests = [rig.request("gone", &set_if("k", "v", Condition::IfAbsent, 0)), {
        rig.request("gone", &del("k"))
    }];
    let requests = requests.map(|request| of_user(request, "a"));
    for (request, expected) in requests.iter().zip([OK, r":1\r\n"]) {
        assert_eq!(persisted(rig, request, disk), expected);
    }
    let newer = rig.request("writer", &set("k", "newer"));
    assert_eq!(persisted(rig, &of_user(newer, "writers"), disk), OK);
    requests
}

fn of_user(mut request: StoreRequest, user: &str) -> StoreRequest {
    request.owner = Some(user.into());
    request
}

/// Many more responses of one user, with three client ids, than the cache has entries.
fn flood(rig: &mut Rig, disk: &mut Vec<Record>) {
    for turn in 0..18_000 {
        let request = rig.request(["b1", "b2", "b3"][turn % 3], &del("nothing"));
        assert_eq!(persisted(rig, &of_user(request, "b"), disk), r":0\r\n");
    }
}

#[test]
fn flood_of_one_user_makes_no_duplicate_of_another_execute_again() {
    let limits = StoreLimits::default();
    for [leaves_before, leaves_after] in [[true, false], [false, true]] {
        for leave in absences() {
            let mut disk = Vec::new();
            let mut rig = Rig::with(StoreConfig::new(7).durability(Durability::All));
            let redelivered = old_del_and_newer_value(&mut rig, &mut disk);
            let number = rig.number;
            if leaves_before {
                rig = leave(rig, &disk, limits);
                rig.number = number;
            }
            flood(&mut rig, &mut disk);
            if leaves_after {
                rig = leave(rig, &disk, limits);
            }
            for (request, first) in redelivered.iter().zip([OK, r":1\r\n"]) {
                assert_eq!(persisted(&mut rig, request, &mut disk), first);
            }
            let value = rig.store.get(rig.now(), b"k").map(|entry| entry.value.to_vec());
            assert_eq!(value.as_deref(), Some(&b"newer"[..]));
        }
    }
}

/// Requests, each with another client id, of one owner: a user or all unverified clients.
fn many_ids(rig: &mut Rig, user: Option<&str>, count: usize) -> Vec<StoreRequest> {
    (0..count)
        .map(|_| {
            let id = format!("id-{}", rig.number);
            let mut request = rig.request(&id, &stop("k"));
            match user {
                Some(user) => request.owner = Some(user.into()),
                None => request.verified = None,
            }
            rig.reply(&request);
            request
        })
        .collect()
}

fn duplicates_of(rig: &mut Rig, requests: &[StoreRequest]) -> u64 {
    let before = rig.store.counters().duplicates();
    requests.iter().for_each(|request| _ = rig.reply(request));
    rig.store.counters().duplicates() - before
}

#[test]
fn owner_with_many_client_ids_evicts_only_its_own_responses() {
    let limits = StoreLimits { dedup_entries_max: 16, ..StoreLimits::default() };
    for flooding in [Some("b"), None] {
        let mut rig = Rig::limited(limits);
        let victims = many_ids(&mut rig, Some("a"), 8);
        let alone = rig.request("alone", &stop("k"));
        rig.reply(&alone);
        many_ids(&mut rig, flooding, 1_000);
        assert_eq!(duplicates_of(&mut rig, &victims[1..]), 7, "{flooding:?}");
        assert_eq!(duplicates_of(&mut rig, &[alone]), 1, "{flooding:?}");
    }
    // Unverified ids have one share together, and a verified client does not use it up.
    let mut rig = Rig::limited(limits);
    let victims = many_ids(&mut rig, None, 8);
    for _ in 0..1_000 {
        rig.answer("flood", &stop("k"));
    }
    assert_eq!(duplicates_of(&mut rig, &victims), 8);
}

#[test]
fn owner_loses_its_oldest_response_of_any_client_id() {
    let limits = StoreLimits { dedup_entries_max: 4, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let requests = many_ids(&mut rig, Some("a"), 6);
    assert_eq!(duplicates_of(&mut rig, &requests[2..]), 4);
    assert_eq!(duplicates_of(&mut rig, &requests[1..2]), 0);
}

#[test]
fn unverified_client_id_that_floods_evicts_only_its_own_responses() {
    let limits = StoreLimits { dedup_entries_max: 16, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let quiet = many_ids(&mut rig, None, 5);
    for _ in 0..1_000 {
        let mut request = rig.request("flood", &stop("k"));
        request.verified = None;
        rig.reply(&request);
    }
    assert_eq!(duplicates_of(&mut rig, &quiet), 5);
}

#[test]
fn equal_owners_lose_the_oldest_response_first() {
    let mut rig = Rig::limited(StoreLimits { dedup_entries_max: 3, ..StoreLimits::default() });
    let requests = ["a", "b", "c", "d"].map(|client| rig.request(client, &stop("k")));
    for request in &requests {
        rig.reply(request);
    }
    assert_eq!(duplicates_of(&mut rig, &requests[1..]), 3);
    assert_eq!(duplicates_of(&mut rig, &requests[..1]), 0);
}

#[test]
fn client_that_floods_evicts_no_response_of_an_absent_client() {
    let limits = StoreLimits { dedup_entries_max: 16, ..StoreLimits::default() };
    for leave in absences() {
        let mut disk = Vec::new();
        let mut rig = Rig::with(StoreConfig::new(7).limits(limits).durability(Durability::All));
        let gone = take_once(&mut rig, "gone", &mut disk);
        let mut rig = leave(rig, &disk, limits);
        rig.number = 100;
        (0..100).for_each(|_| _ = take_once(&mut rig, "flood", &mut Vec::new()));
        assert_eq!(persisted(&mut rig, &gone, &mut disk), OK);
    }
}

#[test]
fn response_with_a_long_retention_does_not_keep_expired_ones() {
    let limits = StoreLimits { dedup_entries_max: 8, ..StoreLimits::default() };
    let mut rig = Rig::limited(limits);
    let mut request = rig.request("long", &del("k"));
    request.expiry = Some(u32::MAX);
    rig.reply(&request);
    for n in 0..7 {
        rig.answer(&format!("c{n}"), &del("k"));
    }
    rig.millis = 61_000;
    let take = rig.request("victim", &set_if("k", "v", Condition::IfAbsent, 0));
    assert_eq!(rig.reply(&take).0, OK);
    rig.store.handle(rig.now(), Input::ClientGone("victim"));
    rig.answer("another", &del("other"));
    assert_eq!(rig.reply(&take).0, OK, "the expired responses made way");
}

/// A response, and whether the owner has used no more than an equal part of the cache since then.
struct Given {
    request: StoreRequest,
    owner: usize,
    cost: usize,
    until: u64,
    is_protected: bool,
}

/// The owners of a model: two users with many client ids each, a verified client that is its own
/// owner, and the unverified client ids.
const OWNERS: usize = 4;

/// The entries of its cache, and the bytes for each.
const ENTRIES: usize = 16;
const ENTRY_BYTES: usize = 400;

fn request_of(rig: &mut Rig, owner: usize, client: u8, seconds: u32) -> StoreRequest {
    let id = if owner == 2 { "alone".to_owned() } else { format!("{owner}-{client}") };
    let mut request = rig.request(&id, &del("k"));
    request.expiry = Some(seconds);
    match owner {
        0 | 1 => request.owner = Some(format!("user {owner}")),
        2 => {}
        _ => request.verified = None,
    }
    request
}

/// The responses that the store must find, by a simple rule: at each response, the ones whose
/// retention has not passed count for their owner, and an owner with more than an equal part of the
/// cache may lose all of its own.
fn count(given: &mut [Given]) {
    let costs = [0, 1, 2, 3]
        .map(|owner| given.iter().filter(|it| it.owner == owner).map(|it| it.cost).sum::<usize>());
    let owners = costs.iter().filter(|cost| **cost > 0).count();
    for it in given {
        it.is_protected &= costs[it.owner] * owners <= ENTRIES * ENTRY_BYTES;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each operation is a request, some time before it, and sometimes a restart.
    #[test]
    fn response_of_an_owner_within_an_equal_part_of_the_cache_is_found(
        operations in prop::collection::vec(
            (0..OWNERS, any::<u8>(), 1..4_u32, 0..1_000_u64, prop::bool::weighted(0.05)),
            1..80,
        )
    ) {
        let limits = StoreLimits {
            dedup_entries_max: ENTRIES,
            dedup_bytes_max: ENTRIES * ENTRY_BYTES,
            ..StoreLimits::default()
        };
        let mut disk = Vec::new();
        let mut rig = restarted(&disk, limits);
        // The running time of the stores at the last start, and at the last response.
        let (mut started, mut last) = (0, 0);
        let mut given: Vec<Given> = Vec::new();
        for (owner, client, seconds, wait, restarts) in operations {
            if restarts {
                let number = rig.number;
                rig = restarted(&disk, limits);
                (rig.number, started) = (number, last);
            }
            rig.millis += wait;
            last = started + rig.millis;
            given.retain(|it| it.until > last);
            let request = request_of(&mut rig, owner, client, seconds);
            let reply = persisted(&mut rig, &request, &mut disk);
            prop_assert_eq!(reply, r":0\r\n");
            let texts = [
                Some(&format!("{owner}-{client}")).filter(|_| owner != 2).map_or(5, String::len),
                request.owner.as_ref().map_or(0, String::len),
                request.response_topic.as_ref().map_or(0, String::len),
                request.correlation.as_ref().map_or(0, Vec::len),
                ":0\r\n".len(),
            ];
            given.push(Given {
                request,
                owner,
                cost: texts.iter().sum::<usize>() + ENTRY_BYTES,
                until: last + u64::from(seconds) * 2_000,
                is_protected: true,
            });
            count(&mut given);
            for it in given.iter().filter(|it| it.is_protected) {
                let before = rig.store.counters().duplicates();
                let mut again = it.request.clone();
                again.arrived = Some(rig.now().instant);
                persisted(&mut rig, &again, &mut Vec::new());
                let found = rig.store.counters().duplicates() - before;
                prop_assert_eq!(found, 1, "owner {} lost {:?}", it.owner, it.request);
            }
        }
    }
}
