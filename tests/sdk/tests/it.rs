//! The SDK's clients for the state store and for locks, with an external and with an embedded
//! broker.

use std::time::Duration;

use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_services::leased_lock::{lease, lock};
use azure_iot_operations_services::state_store::{
    Client, ErrorKind, KeyObservation, Operation, ServiceError, SetCondition, SetOptions,
};
use statestore_client::{Options, connect, serve};
use statestore_proto::hlc::Hlc;
use statestore_sdk_tests::{Application, TIMEOUT};
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::process::timely;

/// Runs each test with an external broker (mosquitto) and with an embedded broker, with a time
/// limit.
macro_rules! with_each_broker {
    ($($name:ident)*) => {
        mod external {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let test = stringify!($name);
                    let Some(broker) = super::Mosquitto::start(test) else { return };
                    let options = super::Options::new("statestore", "127.0.0.1", broker.port());
                    let service = super::serve(options).expect("valid options");
                    service.wait_connected().await.expect("the store connects");
                    super::timely(super::cases::$name(broker.port())).await;
                    service.shutdown().await;
                }
            )*
        }

        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let options = statestore_server::Options::new(([127, 0, 0, 1], 0));
                    let serving = statestore_server::serve(options).await;
                    let (broker, service) = serving.expect("a free port");
                    service.wait_connected().await.expect("the store connects");
                    super::timely(super::cases::$name(broker.local_addr().port())).await;
                    service.shutdown().await;
                    broker.stop().await;
                }
            )*
        }
    };
}

with_each_broker! {
    commands_return_their_results
    conditional_sets_apply_only_if_met_and_values_expire
    write_with_an_older_or_no_token_is_refused
    observer_receives_set_and_expiry_until_it_unobserves
    binary_keys_and_large_values_are_returned_unchanged
    listing_returns_all_keys_in_pages
    patterns_match_as_the_sdk_documents
    listing_returns_stable_keys_once_during_writes
    lease_has_one_holder_and_growing_tokens
    waiting_lock_is_acquired_after_the_release
    sdk_lock_and_own_lock_exclude_each_other
}

/// Converts a clock value: the SDK cannot compare its own.
fn order(clock: &HybridLogicalClock) -> Hlc {
    clock.to_string().parse().expect("a clock")
}

async fn set(client: &Client, key: &str, value: &str) -> HybridLogicalClock {
    let options = SetOptions::default();
    let set = client.set(key.into(), value.into(), TIMEOUT, None, options).await.expect("set");
    assert!(set.response, "applied");
    set.version.expect("a version")
}

async fn get(client: &Client, key: &str) -> Option<Vec<u8>> {
    let get = client.get(key.into(), TIMEOUT).await.expect("get");
    assert_eq!(get.response.is_some(), get.version.is_some(), "a value has a version");
    get.response
}

/// Waits for the next notification.
async fn next_notification(observation: &mut KeyObservation) -> (Operation, HybridLogicalClock) {
    let (notification, _) = observation.recv_notification().await.expect("it goes on");
    assert_eq!(notification.key, b"k");
    (notification.operation, notification.version)
}

mod cases {
    use super::*;

    pub(super) async fn commands_return_their_results(port: u16) {
        let application = Application::connect("sdk-1", port);
        let client = &application.client;
        assert_eq!(get(client, "k").await, None);
        let first = set(client, "k", "1").await;
        assert_eq!(get(client, "k").await, Some(b"1".to_vec()));
        assert!(order(&set(client, "k", "2").await) > order(&first), "versions grow");
        let vdel = |value: &str| client.vdel(b"k".into(), value.into(), None, TIMEOUT);
        assert_eq!(vdel("1").await.expect("vdel").response, -1, "another value");
        assert_eq!(vdel("2").await.expect("vdel").response, 1);
        assert_eq!(vdel("2").await.expect("vdel").response, 0, "absent");
        set(client, "k", "3").await;
        let del = || client.del(b"k".into(), None, TIMEOUT);
        assert_eq!(del().await.expect("del").response, 1);
        assert_eq!(del().await.expect("del").response, 0);
        application.close().await;
    }

    pub(super) async fn conditional_sets_apply_only_if_met_and_values_expire(port: u16) {
        let application = Application::connect("sdk-1", port);
        let client = &application.client;
        let later = Duration::from_secs(3_600);
        let set_if = async |value: &str, set_condition: SetCondition, expires: Duration| {
            let expires = Some(expires);
            let options = SetOptions { set_condition, expires, persist: true };
            let set = client.set(b"k".into(), value.into(), TIMEOUT, None, options).await;
            set.expect("set").response
        };
        assert!(set_if("1", SetCondition::OnlyIfDoesNotExist, later).await);
        assert!(!set_if("2", SetCondition::OnlyIfDoesNotExist, later).await);
        assert!(!set_if("2", SetCondition::OnlyIfEqualOrDoesNotExist, later).await);
        let soon = Duration::from_millis(600);
        assert!(set_if("1", SetCondition::OnlyIfEqualOrDoesNotExist, soon).await);
        while get(client, "k").await.is_some() {}
        assert!(set_if("2", SetCondition::OnlyIfDoesNotExist, later).await, "it has expired");
        application.close().await;
    }

    pub(super) async fn write_with_an_older_or_no_token_is_refused(port: u16) {
        let application = Application::connect("sdk-1", port);
        let client = &application.client;
        let old = set(client, "lock", "1").await;
        let new = set(client, "lock", "2").await;
        let fenced =
            |token| client.set(b"k".into(), b"v".into(), TIMEOUT, token, SetOptions::default());
        assert!(fenced(Some(new)).await.expect("set").response);
        let refused = |error: &ErrorKind| match error {
            ErrorKind::ServiceError(error) => format!("{error:?}"),
            other => format!("{other}"),
        };
        let stale = fenced(Some(old)).await.expect_err("an old token");
        assert_eq!(refused(stale.kind()), format!("{:?}", ServiceError::FencingTokenLowerVersion));
        let bare = fenced(None).await.expect_err("no token");
        assert_eq!(refused(bare.kind()), format!("{:?}", ServiceError::MissingFencingToken));
        application.close().await;
    }

    pub(super) async fn observer_receives_set_and_expiry_until_it_unobserves(port: u16) {
        let (watching, writing) =
            (Application::connect("sdk-1", port), Application::connect("sdk-2", port));
        let mut observation =
            watching.client.observe(b"k".to_vec(), TIMEOUT).await.expect("observe").response;
        let version = set(&writing.client, "k", "1").await;
        assert_eq!(
            next_notification(&mut observation).await,
            (Operation::Set(b"1".to_vec()), version)
        );
        let options =
            SetOptions { expires: Some(Duration::from_millis(50)), ..SetOptions::default() };
        let set = writing.client.set(b"k".into(), b"2".into(), TIMEOUT, None, options).await;
        let version = set.expect("set").version.expect("a version");
        assert_eq!(next_notification(&mut observation).await.0, Operation::Set(b"2".to_vec()));
        let (operation, of) = next_notification(&mut observation).await;
        assert_eq!((operation, of), (Operation::Del, version), "the value expires");
        let stop = || watching.client.unobserve(b"k".to_vec(), TIMEOUT);
        assert!(stop().await.expect("unobserve").response);
        assert!(!stop().await.expect("unobserve").response, "not observed any more");
        watching.close().await;
        writing.close().await;
    }

    pub(super) async fn binary_keys_and_large_values_are_returned_unchanged(port: u16) {
        let application = Application::connect("sdk-1", port);
        let key: Vec<u8> = (0..=255).cycle().take(6_500).collect();
        for size in [0, 1, 65_000] {
            let value: Vec<u8> = (0..=255).rev().cycle().take(size).collect();
            let client = &application.client;
            let options = SetOptions::default();
            let set = client.set(key.clone(), value.clone(), TIMEOUT, None, options).await;
            assert!(set.expect("set").response);
            let found = client.get(key.clone(), TIMEOUT).await.expect("get").response;
            assert_eq!(found, Some(value));
        }
        application.close().await;
    }

    /// Sets keys that fill several pages, and returns them in order.
    async fn many_keys(client: &Client) -> Vec<Vec<u8>> {
        let name =
            |number| format!("devices/{number:03}/a-key-of-some-length-as-they-are-in-the-field");
        let keys: Vec<_> = (0..400).map(|number| name(number).into_bytes()).collect();
        let set = |key: &Vec<u8>| {
            client.set(key.clone(), b"v".into(), TIMEOUT, None, SetOptions::default())
        };
        for some in keys.chunks(50) {
            let sets: Vec<_> = some.iter().map(set).collect();
            for set in sets {
                assert!(set.await.expect("set").response);
            }
        }
        keys
    }

    /// Lists all keys, and counts the pages.
    async fn listed(client: &Client, pattern: &str) -> (Vec<Vec<u8>>, usize) {
        let mut pager = client.list_keys(pattern.into(), TIMEOUT).expect("a pager");
        let (mut keys, mut pages) = (Vec::new(), 0);
        while let Some(page) = pager.next().await.expect("a page") {
            keys.extend(page);
            pages += 1;
        }
        assert_eq!(pager.next().await.expect("the end"), None, "the end is final");
        keys.sort();
        (keys, pages)
    }

    pub(super) async fn listing_returns_all_keys_in_pages(port: u16) {
        let application = Application::connect("sdk-1", port);
        let client = &application.client;
        assert_eq!(listed(client, "*").await, (vec![], 1), "an empty store has a page");
        let keys = many_keys(client).await;
        set(client, "decoy", "v").await;
        let (found, pages) = listed(client, "devices/*").await;
        assert_eq!(found, keys);
        assert!((3..=64).contains(&pages), "{pages} pages");
        assert_eq!(listed(client, "*/39?/*").await.0, keys[390..]);
        // Two pagers of one client are independent.
        let mut one = client.list_keys(b"devices/*".into(), TIMEOUT).expect("a pager");
        let mut two = client.list_keys(b"devices/*".into(), TIMEOUT).expect("a pager");
        let first = one.next().await.expect("a page").expect("not the last");
        assert_eq!(two.next().await.expect("a page").expect("not the last"), first);
        let second = one.next().await.expect("a page").expect("not the last");
        assert_eq!(two.next().await.expect("a page").expect("not the last"), second);
        assert!(first.iter().all(|key| !second.contains(key)));
        application.close().await;
    }

    pub(super) async fn patterns_match_as_the_sdk_documents(port: u16) {
        let application = Application::connect("sdk-1", port);
        let client = &application.client;
        for key in ["a", "a1", "a2", "b/1", "b/1/2", "a*", "\u{e9}1", "."] {
            set(client, key, "v").await;
        }
        let binary =
            client.set(vec![b'a', 0xff], b"v".into(), TIMEOUT, None, SetOptions::default());
        assert!(binary.await.expect("set").response);
        for (pattern, expected) in [
            ("a?", &[&b"a*"[..], b"a1", b"a2", b"a\xff"][..]),
            ("a[0-9]", &[b"a1", b"a2"]),
            ("a[!0-9]", &[b"a*", b"a\xff"]),
            ("a[*]", &[b"a*"]),
            ("?1", &[b"a1", "\u{e9}1".as_bytes()]),
            ("b/*", &[b"b/1", b"b/1/2"]),
            ("b/**/2", &[b"b/1/2"]),
            ("A*", &[]),
            ("[.b]*", &[b".", b"b/1", b"b/1/2"]),
        ] {
            let expected: Vec<Vec<u8>> = expected.iter().map(|key| (*key).into()).collect();
            assert_eq!(listed(client, pattern).await.0, expected, "{pattern}");
        }
        assert!(client.list_keys(vec![], TIMEOUT).is_err(), "the SDK refuses an empty pattern");
        let mut refused = client.list_keys(b"a[".into(), TIMEOUT).expect("a pager");
        let error = refused.next().await.expect_err("an invalid pattern");
        assert!(matches!(error.kind(), ErrorKind::ServiceError(_)), "{error}");
        application.close().await;
    }

    pub(super) async fn listing_returns_stable_keys_once_during_writes(port: u16) {
        let (listing, writing) =
            (Application::connect("sdk-1", port), Application::connect("sdk-2", port));
        let keys = many_keys(&writing.client).await;
        let mut pager = listing.client.list_keys(b"devices/*".into(), TIMEOUT).expect("a pager");
        let (mut found, mut turn) = (Vec::new(), 0);
        while let Some(page) = pager.next().await.expect("a page") {
            found.extend(page);
            // Deletes every tenth key, and adds keys before and after the position of the listing.
            let gone = keys.iter().skip(turn).step_by(10).take(5);
            for key in gone {
                let del = writing.client.del(key.clone(), None, TIMEOUT).await;
                assert!(del.expect("del").response <= 1);
            }
            for new in [format!("devices/000/{turn}"), format!("devices/399/~{turn}")] {
                set(&writing.client, &new, "v").await;
            }
            turn += 1;
        }
        assert!(turn >= 3, "{turn} pages");
        let touched = |at: usize| {
            (0..turn)
                .any(|turn| at >= turn && (at - turn).is_multiple_of(10) && (at - turn) / 10 < 5)
        };
        for (at, key) in keys.iter().enumerate() {
            let times = found.iter().filter(|other| *other == key).count();
            assert!(times == 1 || times == 0 && touched(at), "key {at} is listed {times} times");
        }
        let news = found.len() - keys.iter().filter(|key| found.contains(key)).count();
        assert!(news <= 2 * turn, "nothing else is listed");
        listing.close().await;
        writing.close().await;
    }

    fn lease_of(application: &Application, holder: &str) -> lease::Client {
        lease::Client::new(application.client.clone(), b"lock".into(), holder.into())
            .expect("a lease")
    }

    pub(super) async fn lease_has_one_holder_and_growing_tokens(port: u16) {
        let (one, two) = (Application::connect("sdk-1", port), Application::connect("sdk-2", port));
        let (first, second) = (lease_of(&one, "sdk-1"), lease_of(&two, "sdk-2"));
        let term = Duration::from_secs(20);
        let token = first.acquire(term, TIMEOUT, None).await.expect("free");
        assert!(second.acquire(term, TIMEOUT, None).await.is_err(), "held");
        let holder = second.get_holder(TIMEOUT).await.expect("a query");
        assert_eq!(holder.as_deref(), Some(&b"sdk-1"[..]));
        let renewed = first.acquire(term, TIMEOUT, None).await.expect("renewed");
        assert!(order(&renewed) > order(&token), "a renewal has a newer token");
        first.release(TIMEOUT).await.expect("release");
        let token = second.acquire(term, TIMEOUT, None).await.expect("free again");
        assert!(order(&token) > order(&renewed), "a new holder has a newer token");
        second.release(TIMEOUT).await.expect("release");
        one.close().await;
        two.close().await;
    }

    pub(super) async fn waiting_lock_is_acquired_after_the_release(port: u16) {
        let (one, two) = (Application::connect("sdk-1", port), Application::connect("sdk-2", port));
        let lock_of = |application: &Application, holder: &str| {
            lock::Client::new(application.client.clone(), b"lock".into(), holder.into())
                .expect("a lock")
        };
        let (first, second) = (lock_of(&one, "sdk-1"), lock_of(&two, "sdk-2"));
        let term = Duration::from_secs(20);
        let token = first.lock(term, TIMEOUT, Some(Duration::from_secs(1))).await.expect("free");
        let waiting = tokio::spawn(async move { second.lock(term, TIMEOUT, None).await });
        // The second client observes the lock, then tries to acquire it, then waits.
        while lease_of(&one, "sdk-1").get_holder(TIMEOUT).await.expect("a query").is_none() {}
        first.unlock(TIMEOUT).await.expect("unlock");
        let next = waiting.await.expect("no panic").expect("free after the release");
        assert!(order(&next) > order(&token), "a new holder has a newer token");
        one.close().await;
        two.close().await;
    }

    pub(super) async fn sdk_lock_and_own_lock_exclude_each_other(port: u16) {
        let theirs = Application::connect("sdk-1", port);
        let ours = connect(Options::new("ours", "127.0.0.1", port)).expect("a client id");
        let term = Duration::from_secs(20);
        let sdk = lock::Client::new(theirs.client.clone(), b"lock".into(), b"sdk-1".into());
        let sdk = sdk.expect("a lock");
        let lock = ours.lock("lock").lease(term);
        let first = sdk.lock(term, TIMEOUT, None).await.expect("free");
        assert!(lock.try_acquire().await.expect("an answer").is_none(), "the SDK holds it");
        assert_eq!(lock.holder().await.expect("an answer").expect("held").name(), b"sdk-1");
        let waiting = tokio::spawn(async move { lock.acquire().await });
        sdk.unlock(TIMEOUT).await.expect("unlock");
        let guard = waiting.await.expect("no panic").expect("free after the release");
        let second = guard.token().expect("held");
        assert!(*second.hlc() > order(&first), "a new holder has a newer token");
        guard.set("valve", "open").await.expect("guarded");
        let other = sdk.clone();
        let waiting = tokio::spawn(async move { other.lock(term, TIMEOUT, None).await });
        guard.release().await.expect("release");
        let third = waiting.await.expect("no panic").expect("free after the release");
        let write = |token| {
            let (key, value) = (b"valve".to_vec(), b"shut".to_vec());
            theirs.client.set(key, value, TIMEOUT, Some(token), SetOptions::default())
        };
        assert!(write(first).await.is_err(), "an old token");
        assert!(write(third).await.expect("set").response);
        ours.shutdown().await;
        theirs.close().await;
    }
}
