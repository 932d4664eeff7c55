//! Who leads, and who does not any more.

use std::time::Duration;

use statestore_etcd::Role;
use tokio::time::{Instant, timeout};

use crate::proxy::{Proxy, Way};
use crate::support::{Server, commit, contents, journal, load, new_store, restore, set};

const LONG: Duration = Duration::from_secs(60);

/// Waits until a role is such a one.
async fn until(watch: &mut statestore_etcd::RoleWatch, is_wanted: impl Fn(&Role) -> bool) -> Role {
    let wait = async {
        let mut role = watch.current();
        while !is_wanted(&role) {
            role = watch.changed().await.expect("it is there");
        }
        role
    };
    timeout(LONG, wait).await.expect("the role comes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_follows_and_takes_over_from_one_that_is_gone() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 2);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let mut second = journal(&server.url(), "second", 2);
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
    let gone = Instant::now();
    let leadership = first.leadership();
    drop(first);
    assert!(matches!(
        until(&mut role, |role| !matches!(role, Role::Standby { .. })).await,
        Role::Leading { epoch: 2, .. }
    ));
    let after = gone.elapsed();
    let (mut second, records) = timeout(LONG, loading).await.unwrap().unwrap();
    eprintln!("leading {after:?} after the other was gone, with a lease of 2 s");
    assert!(after > Duration::from_millis(500), "{after:?}: the lease was not waited for");
    assert!(!leadership.is_held());
    assert_eq!(contents(&restore(&records)), contents(&store));
    commit(&mut second, set(&mut store, 99, b"z", b"1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_resigns_is_followed_at_once() {
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
    eprintln!("leading {after:?} after the other has resigned");
    assert!(after < Duration::from_secs(10), "{after:?} of a lease of 60 s");
    assert_eq!(contents(&restore(&records)), contents(&store));
    let error = commit(&mut first, set(&mut store, 2, b"b", b"2")).await.unwrap_err();
    assert!(error.to_string().contains("resigned"), "{error}");
    assert!(!server.has("k/b").await);
    assert_eq!(first.role().current(), Role::Lost { reason: "resigned".to_owned() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_deposed_writes_nothing_more() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    // As if its lease had run out while it stood still.
    server.client().await.delete("/ss/statestore/leader", None).await.unwrap();
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
async fn a_barrier_finds_that_another_leads() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    commit(&mut first, vec![]).await.unwrap();
    server.client().await.delete("/ss/statestore/leader", None).await.unwrap();
    let mut second = journal(&server.url(), "second", 60);
    load(&mut second).await.unwrap();
    let error = commit(&mut first, vec![]).await.unwrap_err().to_string();
    assert!(error.contains("deposed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_lost_while_idle_is_told_at_once() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::to(server.port).await;
    let mut first = journal(&proxy.url(), "first", 2);
    load(&mut first).await.unwrap();
    let mut role = first.role();
    assert!(matches!(role.current(), Role::Leading { epoch: 1, .. }));
    let shut = Instant::now();
    proxy.set(Way::Shut);
    let lost = until(&mut role, Role::is_final).await;
    let after = shut.elapsed();
    assert!(matches!(lost, Role::Lost { .. }), "{lost:?}");
    eprintln!("the loss of a lease of 2 s was told {after:?} after the way to etcd was shut");
    assert!(!first.leadership().is_held());
    proxy.set(Way::Open);
    let mut store = new_store();
    let error = commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap_err().to_string();
    assert!(error.contains("not leading any more"), "{error}");
    assert!(!server.has("k/a").await);
}
