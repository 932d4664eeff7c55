//! Elections, failover, and the roles that report them.

use std::time::Duration;

use statestore_etcd::{EtcdJournal, Role, RoleWatch};
use statestore_proto::hlc::{Hlc, NodeId, Version};
use statestore_proto::store::Record;
use statestore_proto::time::UnixTime;
use statestore_tokio::JournalError;
use tokio::time::{Instant, timeout};

use crate::proxy::{Mode, Proxy};
use crate::support::{Server, commit, contents, journal, load, new_store, restore, set};

const LONG: Duration = Duration::from_secs(60);

/// Waits for a wanted role.
async fn until(watch: &mut RoleWatch, is_wanted: impl Fn(&Role) -> bool) -> Role {
    let wait = async {
        let mut role = watch.current();
        while !is_wanted(&role) {
            role = watch.changed().await.expect("the journal exists");
        }
        role
    };
    timeout(LONG, wait).await.expect("the role changes in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_follows_and_leads_after_the_lease_of_a_dead_leader() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 4);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let mut second = journal(&server.url(), "second", 4);
    let mut role = second.role();
    let loading = tokio::spawn(async move {
        let records = load(&mut second).await.unwrap();
        (second, records)
    });
    let seen = until(&mut role, |role| matches!(role, Role::Standby { leader: Some(_), .. })).await;
    let Role::Standby { leader: Some(leader), .. } = seen else { panic!("{seen:?}") };
    assert_eq!((&*leader.name, &*leader.address), ("first", "mqtt://here"));
    for number in 2..30 {
        let key = [b'k', (number % 7) as u8];
        commit(&mut first, set(&mut store, number, &key, b"v")).await.unwrap();
    }
    assert!(first.leadership().is_held());
    assert!(!loading.is_finished());
    let dropped = Instant::now();
    let leadership = first.leadership();
    drop(first);
    assert!(matches!(
        until(&mut role, |role| !matches!(role, Role::Standby { .. })).await,
        Role::Leading { epoch: 2, .. }
    ));
    let after = dropped.elapsed();
    let (mut second, records) = timeout(LONG, loading).await.unwrap().unwrap();
    eprintln!("failover {after:?} after the end of the leader, with a lease of 4 s");
    assert!(after > Duration::from_millis(500), "{after:?}: before the end of the lease");
    assert!(!leadership.is_held());
    assert_eq!(contents(&restore(&records)), contents(&store));
    commit(&mut second, set(&mut store, 99, b"z", b"1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_leads_at_once_after_a_resignation() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    let mut role = second.role();
    let loading =
        tokio::spawn(async move { load(&mut second).await.map(|records| (second, records)) });
    until(&mut role, |role| matches!(role, Role::Standby { leader: Some(_), .. })).await;
    let resigned = Instant::now();
    first.leadership().resign().await.unwrap();
    let (_second, records) = timeout(LONG, loading).await.unwrap().unwrap().unwrap();
    let after = resigned.elapsed();
    eprintln!("failover {after:?} after the resignation");
    assert!(after < Duration::from_secs(10), "{after:?} of a lease of 60 s");
    assert_eq!(contents(&restore(&records)), contents(&store));
    let error = commit(&mut first, set(&mut store, 2, b"b", b"2")).await.unwrap_err();
    assert!(error.to_string().contains("resigned"), "{error}");
    assert!(!server.has("k/b").await);
    assert_eq!(first.role().current(), Role::Lost { reason: "resigned".to_owned() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deposed_leader_writes_nothing_more() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    // Simulates a stop of the process for longer than its lease.
    server.client().await.delete("/statestore/leader", None).await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    let records = load(&mut second).await.unwrap();
    assert_eq!(contents(&restore(&records)), contents(&store));
    for late in [set(&mut store, 2, b"late", b"2"), vec![]] {
        let error = commit(&mut first, late).await.unwrap_err().to_string();
        assert!(
            error.contains("deposed: \"second\" leads in epoch 2") || error.contains("failure"),
            "{error}"
        );
    }
    assert!(!server.has("k/late").await);
    assert!(matches!(first.role().current(), Role::Deposed { .. }));
    commit(&mut second, vec![]).await.unwrap();
    commit(&mut second, set(&mut restore(&records), 3, b"b", b"3")).await.unwrap();
    assert!(server.has("k/b").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_without_records_fails_if_another_store_leads() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    commit(&mut first, vec![]).await.unwrap();
    server.client().await.delete("/statestore/leader", None).await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    load(&mut second).await.unwrap();
    let error = commit(&mut first, vec![]).await.unwrap_err().to_string();
    assert!(error.contains("deposed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_lost_while_idle_is_reported_without_a_commit() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::start(server.port()).await;
    let mut first = journal(&proxy.url(), "first", 4);
    load(&mut first).await.unwrap();
    let mut role = first.role();
    assert!(matches!(role.current(), Role::Leading { epoch: 1, .. }));
    let stalled = Instant::now();
    proxy.set(Mode::Stall);
    let lost = until(&mut role, Role::is_final).await;
    let after = stalled.elapsed();
    assert!(matches!(lost, Role::Lost { .. }), "{lost:?}");
    eprintln!("loss of a lease of 4 s reported {after:?} after the connection stalled");
    assert!(!first.leadership().is_held());
    proxy.set(Mode::Open);
    let mut store = new_store();
    let error = commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap_err().to_string();
    assert!(error.contains("not leading any more"), "{error}");
    assert!(!server.has("k/a").await);
    // The lease is revoked, so the next leader does not wait until it expires.
    timeout(LONG, async { while server.has("leader").await {} }).await.expect("it is revoked");
}

/// A record of a version that is `millis` ahead of the wall clock.
fn ahead(millis: u64) -> Vec<Record> {
    let node = NodeId::new("node").unwrap();
    let hlc = Hlc::new(UnixTime::from_millis(wall() + millis), 0, node);
    vec![Record::Issued { version: Version::new(hlc) }]
}

#[expect(clippy::disallowed_methods, reason = "heads contain the wall clock of the leader")]
fn wall() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_with_a_clock_a_minute_behind_never_leads() {
    let Some(server) = Server::start().await else { return };
    for (millis, leads) in [(50_000, true), (90_000, false)] {
        let mut first = journal(&server.url(), "first", 60);
        load(&mut first).await.unwrap();
        commit(&mut first, ahead(millis)).await.unwrap();
        first.leadership().resign().await.unwrap();
        let mut second = journal(&server.url(), "second", 4);
        let mut role = second.role();
        let loaded = timeout(Duration::from_secs(6), load(&mut second)).await;
        assert_eq!(loaded.is_ok(), leads, "{millis}");
        assert_eq!(matches!(role.current(), Role::Leading { .. }), leads);
        second.leadership().resign().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_with_clock_skew_delays_its_candidacy() {
    let Some(server) = Server::start().await else { return };
    for (skew, at_least) in [(0, Duration::ZERO), (5_000, Duration::from_secs(8))] {
        let mut first = journal(&server.url(), "first", 60);
        load(&mut first).await.unwrap();
        let mut second = journal(&server.url(), "second", 4);
        let mut role = second.role();
        let loading = tokio::spawn(async move { load(&mut second).await.map(|_| second) });
        until(&mut role, |role| matches!(role, Role::Standby { leader: Some(_), .. })).await;
        // Writes the head of a leader with that skew, and removes the leader.
        let mut client = server.client().await;
        let head = client.get("/statestore/head", None).await.unwrap();
        let head = head.kvs()[0].value_str().unwrap().to_owned();
        let fields: Vec<&str> = head.split(' ').collect();
        let (epoch, sequence) = (fields[0], fields[1].parse::<u64>().unwrap() + 1);
        let head = format!("{epoch} {sequence} {} 1 {}", wall() - skew, fields[4]);
        client.put("/statestore/head", head, None).await.unwrap();
        client.delete("/statestore/leader", None).await.unwrap();
        let free = Instant::now();
        let second = timeout(LONG, loading).await.unwrap().unwrap().unwrap();
        assert!(free.elapsed() >= at_least, "{skew} ms: {:?}", free.elapsed());
        assert!(
            free.elapsed() < at_least + Duration::from_secs(20),
            "{skew} ms: {:?}",
            free.elapsed()
        );
        second.leadership().resign().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_standbys_leads_at_a_time() {
    let Some(server) = Server::start().await else { return };
    let mut waiting = Vec::new();
    for number in 0..5 {
        let mut journal = journal(&server.url(), &format!("store {number}"), 30);
        waiting.push((
            journal.role(),
            tokio::spawn(async move { load(&mut journal).await.map(|records| (journal, records)) }),
        ));
    }
    let mut store = new_store();
    for round in 1..=5_u64 {
        // Each round has another leader, which has read the writes of all earlier ones.
        let leading = until_one_leads(&mut waiting).await;
        let (_, loading) = waiting.swap_remove(leading);
        let (mut leader, records) = loading.await.unwrap().unwrap();
        assert_eq!(contents(&restore(&records)), contents(&store));
        commit(&mut leader, set(&mut store, round, &round.to_be_bytes(), b"v")).await.unwrap();
        assert_eq!(server.head().await, (round, 2 * round));
        for (role, _) in &mut waiting {
            let role = role.current();
            assert!(matches!(role, Role::Standby { .. }), "{role:?}");
        }
        leader.leadership().resign().await.unwrap();
    }
}

type Loading = tokio::task::JoinHandle<Result<(EtcdJournal, Vec<Record>), JournalError>>;

async fn until_one_leads(waiting: &mut [(RoleWatch, Loading)]) -> usize {
    for _ in 0..3_000 {
        let is_leading =
            |(role, _): &mut (RoleWatch, Loading)| matches!(role.current(), Role::Leading { .. });
        if let Some(leading) = waiting.iter_mut().position(is_leading) {
            return leading;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no store leads");
}
