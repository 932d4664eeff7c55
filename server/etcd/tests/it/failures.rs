//! Failures of etcd and foreign data, and the errors that report them.

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, ConnectOptions, Permission,
    PutOptions, RoleRevokePermissionOptions,
};
use statestore_etcd::{EtcdJournal, Options, OptionsError, Role, Survey};
use statestore_testkit::process::Port;
use tokio::time::{Instant, timeout};

use crate::proxy::{Mode, Proxy};
use crate::support::{Server, commit, contents, journal, load, new_store, options, restore, set};

async fn load_error(journal: &mut EtcdJournal) -> String {
    let error = load(journal).await.unwrap_err().to_string();
    let mut role = journal.role();
    let (Role::Lost { reason } | Role::Failed { reason }) = role.current() else {
        panic!("{role:?}")
    };
    assert_eq!(reason, error);
    error
}

#[test]
fn invalid_options_are_refused_without_a_request() {
    let error = EtcdJournal::new(Options::new::<String>([])).unwrap_err();
    assert_eq!(error, OptionsError::NoEndpoint);
}

#[tokio::test]
async fn missing_etcd_is_reported_at_once() {
    let closed = Port::free();
    let mut journal = journal(&format!("http://127.0.0.1:{}", closed.number()), "only", 60);
    let began = Instant::now();
    let error = load_error(&mut journal).await;
    assert!(error.contains("cannot reach etcd at http://127.0.0.1:"), "{error}");
    assert!(error.contains("refused"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_etcd_is_detected_by_the_time_limit() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::start(server.port()).await;
    proxy.set(Mode::Stall);
    let error = load_error(&mut journal(&proxy.url(), "only", 2)).await;
    assert!(error.contains("did not respond within 500 ms"), "{error}");

    proxy.set(Mode::Open);
    let mut journal = journal(&proxy.url(), "only", 4);
    load(&mut journal).await.unwrap();
    let mut store = new_store();
    commit(&mut journal, set(&mut store, 1, b"a", b"1")).await.unwrap();
    proxy.set(Mode::Stall);
    let error = commit(&mut journal, set(&mut store, 2, b"b", b"2")).await.unwrap_err().to_string();
    assert!(error.contains(&proxy.url()) && error.contains("not leading any more"), "{error}");
}

#[tokio::test]
async fn foreign_data_and_later_layouts_are_refused_and_unchanged() {
    let Some(server) = Server::start().await else { return };
    let mut client = server.client().await;
    client.put("/statestore/x", "y", None).await.unwrap();
    let error = load_error(&mut journal(&server.url(), "only", 60)).await;
    assert!(error.contains("prefix /statestore/: it contains data that no state store"), "{error}");
    assert_eq!(server.keys().await.len(), 1);
    // Another prefix works.
    let other = || options(&server.url(), "only", 60).prefix("/ss/other/");
    load(&mut EtcdJournal::new(other()).unwrap()).await.unwrap();
    client.put("/ss/other/fmt", "statestore 2", None).await.unwrap();
    let error = load_error(&mut EtcdJournal::new(other()).unwrap()).await;
    assert!(error.contains("layout \"statestore 2\""), "{error}");
}

#[tokio::test]
async fn damaged_values_are_reported_without_their_bytes() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"secret")).await.unwrap();
    first.leadership().resign().await.unwrap();
    let mut client = server.client().await;
    for key in ["k/a", "head"] {
        let key = format!("/statestore/{key}");
        let mut before = client.get(&*key, None).await.unwrap();
        client.put(&*key, "secret bytes", None).await.unwrap();
        let error = load_error(&mut journal(&server.url(), "second", 60)).await;
        assert!(error.contains("in etcd is damaged"), "{key}: {error}");
        assert!(!error.contains("secret"), "{error}");
        client.delete(&*key, None).await.unwrap();
        for kv in before.take_kvs() {
            client.put(kv.key(), kv.value(), None).await.unwrap();
        }
    }
    load(&mut journal(&server.url(), "third", 60)).await.unwrap();
}

#[tokio::test]
async fn foreign_keys_are_ignored() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let mut client = server.client().await;
    for key in ["w/x", "a/0", "other", "k/", "s/junk", "s/a\nleads b"] {
        client.put(format!("/statestore/{key}"), "junk", None).await.unwrap();
    }
    // Some keys exist when the standby reads everything; others are changed while it follows.
    let mut second = journal(&server.url(), "second", 60);
    let mut role = second.role();
    let loading = tokio::spawn(async move { load(&mut second).await });
    role.changed().await.unwrap();
    client.put("/statestore/w/y", "junk", None).await.unwrap();
    client.delete("/statestore/other", None).await.unwrap();
    let survey = Survey::fetch(&options(&server.url(), "third", 60)).await.unwrap();
    assert!(survey.standbys.iter().all(|standby| standby.name == "second"), "{survey:?}");
    first.leadership().resign().await.unwrap();
    let records = loading.await.unwrap().unwrap();
    assert_eq!(contents(&restore(&records)), contents(&store));
}

/// Without a lease the key would never expire.
#[tokio::test]
async fn leader_key_without_a_lease_is_replaced() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    first.leadership().resign().await.unwrap();
    let mut client = server.client().await;
    for value in ["junk", "1\nanother\n"] {
        client.put("/statestore/leader", value, None).await.unwrap();
        let survey = Survey::fetch(&options(&server.url(), "survey", 60)).await.unwrap();
        assert_eq!((survey.leader, survey.foreign_lease), (None, None));
        let mut next = journal(&server.url(), "next", 60);
        timeout(Duration::from_secs(30), load(&mut next)).await.unwrap().unwrap();
        let survey = Survey::fetch(&options(&server.url(), "survey", 60)).await.unwrap();
        assert_eq!(survey.leader.unwrap().name, "next");
        assert!(survey.lease_left > Duration::from_secs(5), "{:?}", survey.lease_left);
        next.leadership().resign().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_key_of_another_program_blocks_until_its_lease_is_revoked() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    first.leadership().resign().await.unwrap();
    let mut client = server.client().await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let under = PutOptions::new().with_lease(lease);
    client.put("/statestore/leader", "junk", Some(under)).await.unwrap();
    let survey = Survey::fetch(&options(&server.url(), "survey", 60)).await.unwrap();
    assert_eq!((survey.leader, survey.foreign_lease), (None, Some(lease)));
    let mut next = journal(&server.url(), "next", 60);
    let mut role = next.role();
    let loading = tokio::spawn(async move { load(&mut next).await.map(|_| next) });
    let Some(Role::Standby { leader: Some(leader), .. }) = role.changed().await else { panic!() };
    assert_eq!(leader.name, "a program that is not a store");
    client.lease_revoke(lease).await.unwrap();
    loading.await.unwrap().unwrap();
}

/// Simulates the restore of an earlier snapshot of etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_leader_detects_an_earlier_head() {
    let Some(server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 4);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let mut client = server.client().await;
    let mut before = client.get("/statestore/head", None).await.unwrap();
    commit(&mut first, set(&mut store, 2, b"b", b"1")).await.unwrap();
    let mut role = first.role();
    assert!(matches!(role.current(), Role::Leading { .. }));
    let head = before.take_kvs().remove(0);
    client.put("/statestore/head", head.value(), None).await.unwrap();
    let Some(Role::Lost { reason }) = role.changed().await else { panic!("{role:?}") };
    assert!(reason.contains("etcd has lost data"), "{reason}");
    // It has revoked its lease, long before the lease would have expired.
    while server.has("leader").await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_lease_is_revoked_as_soon_as_etcd_can_be_reached() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::start(server.port()).await;
    let mut first = journal(&proxy.url(), "first", 60);
    load(&mut first).await.unwrap();
    // Most of the lease of a minute is left when the foreign head is detected.
    let mut role = first.role();
    let mut client = server.client().await;
    client.put("/statestore/head", "9 9 1 1 -", None).await.unwrap();
    let store = &mut new_store();
    let error = commit(&mut first, set(store, 1, b"a", b"1")).await.unwrap_err().to_string();
    assert!(error.contains("deposed"), "{error}");
    proxy.set(Mode::Stall);
    assert!(role.current().is_final() || role.changed().await.is_some());
    assert!(server.has("leader").await);
    proxy.set(Mode::Open);
    first.leadership().resign().await.unwrap();
    assert!(!server.has("leader").await);
    // Resigning twice is harmless.
    first.leadership().resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_has_lost_its_data_is_not_written_to() {
    let Some(mut server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 5);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    for number in 0..20 {
        commit(&mut first, set(&mut store, number, b"a", b"1")).await.unwrap();
    }
    let mut second = journal(&server.url(), "second", 5);
    let mut role = second.role();
    let loading = tokio::spawn(async move { load(&mut second).await });
    role.changed().await.unwrap();
    server.restart_empty().await;
    let standby = loading.await.unwrap().unwrap_err().to_string();
    assert!(standby.contains("etcd has lost data"), "{standby}");
    let leader = commit(&mut first, set(&mut store, 99, b"a", b"2")).await.unwrap_err().to_string();
    let is_reported =
        leader.contains("etcd has lost data") || leader.contains("the lease does not exist");
    assert!(is_reported, "{leader}");
    assert!(server.keys().await.is_empty());
    // The next journal of the process does not write either, although the prefix is empty.
    let mut again =
        EtcdJournal::after(options(&server.url(), "first", 5), &first.leadership()).unwrap();
    let again = load_error(&mut again).await;
    assert!(again.contains("etcd has lost data"), "{again}");
    assert!(server.keys().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_survives_a_restart_of_etcd_within_the_lease() {
    let Some(mut server) = Server::start().await else { return };
    let mut first = journal(&server.url(), "first", 60);
    load(&mut first).await.unwrap();
    let mut store = new_store();
    commit(&mut first, set(&mut store, 1, b"a", b"1")).await.unwrap();
    server.kill();
    let records = set(&mut store, 2, b"b", b"2");
    let committing = tokio::spawn(async move {
        let result = commit(&mut first, records).await;
        (first, result)
    });
    server.restart().await;
    let (mut first, result) = committing.await.unwrap();
    result.unwrap();
    commit(&mut first, set(&mut store, 3, b"c", b"3")).await.unwrap();
    assert_eq!(server.head().await, (1, 4));
}

#[tokio::test]
async fn full_database_is_reported_and_a_standby_leads_after_the_fix() {
    let Some(server) = Server::start_with(&["--quota-backend-bytes", "3000000"]).await else {
        return;
    };
    let mut journal = journal(&server.url(), "only", 60);
    load(&mut journal).await.unwrap();
    let mut store = new_store();
    let value = vec![b'v'; 500_000];
    let mut number = 0;
    let error = loop {
        number += 1;
        let records = set(&mut store, number, b"key", &value);
        if let Err(error) = commit(&mut journal, records).await {
            break error.to_string();
        }
        assert!(number < 50, "the database is never full");
    };
    assert!(error.contains("NOSPACE"), "{error}");
    let mut client = server.client().await;
    let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
    assert_eq!(alarms.alarms().len(), 1);
    // A standby waits until there is space, and leads then.
    journal.leadership().resign().await.unwrap();
    let survey = Survey::fetch(&options(&server.url(), "survey", 60)).await.unwrap();
    assert!(
        survey.alarms.iter().all(|alarm| alarm.starts_with("NOSPACE at member ")),
        "{survey:?}"
    );
    assert_eq!((survey.alarms.len(), survey.silent), (1, Vec::new()));
    let mut next = self::journal(&server.url(), "next", 60);
    let loading = tokio::spawn(async move { load(&mut next).await.map(|_| ()) });
    let revision = client.get("key", None).await.unwrap().header().unwrap().revision();
    assert!(!loading.is_finished());
    client.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.defragment().await.unwrap();
    let mut raised = AlarmOptions::new();
    raised.with_member(alarms.alarms()[0].member_id());
    client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(raised)).await.unwrap();
    timeout(Duration::from_secs(60), loading).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn missing_permissions_are_reported() {
    let Some(server) = Server::start().await else { return };
    let mut admin = server.client().await;
    for (user, role) in [("root", "root"), ("store", "store")] {
        admin.role_add(role).await.unwrap();
        admin.user_add(user, "right", None).await.unwrap();
        admin.user_grant_role(user, role).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
    let root = ConnectOptions::new().with_user("root", "right");
    let mut admin = Client::connect([server.url()], Some(root)).await.unwrap();

    let error = load_error(&mut journal(&server.url(), "anonymous", 60)).await;
    assert!(error.contains("rejects this user"), "{error}");
    let with = |password| options(&server.url(), "store", 60).user("store", password);
    let error = load_error(&mut EtcdJournal::new(with("wrong")).unwrap()).await;
    assert!(error.contains("rejects this user") && !error.contains("wrong"), "{error}");
    let error = load_error(&mut EtcdJournal::new(with("right")).unwrap()).await;
    assert!(error.contains("readwrite on the prefix /statestore/"), "{error}");

    // The documented permission is sufficient.
    let granted = Permission::read_write("/statestore/").with_prefix();
    admin.role_grant_permission("store", granted).await.unwrap();
    let mut journal = EtcdJournal::new(with("right")).unwrap();
    load(&mut journal).await.unwrap();
    let mut store = new_store();
    commit(&mut journal, set(&mut store, 1, b"a", b"1")).await.unwrap();
    let revoked = RoleRevokePermissionOptions::new().with_prefix();
    admin.role_revoke_permission("store", "/statestore/", Some(revoked)).await.unwrap();
    let error = commit(&mut journal, set(&mut store, 2, b"b", b"2")).await.unwrap_err().to_string();
    assert!(error.contains("readwrite on the prefix"), "{error}");
}
