//! Content of the log.

use statestore_loopback::Hub;
use statestore_testkit::process::Log;

use crate::both;

const SECRET: &str = "a secret value";

#[tokio::test(start_paused = true)]
async fn client_and_store_log_requests_without_values() {
    let log = Log::listen();
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut changes = store.watch("thermostat").await.expect("watch");
    store.set("thermostat", SECRET).await.expect("set");
    assert!(store.get("thermostat").await.expect("get").is_some());
    assert!(store.set("thermostat", SECRET).if_absent().await.expect("a response").is_none());
    store.vdel("thermostat", SECRET).await.expect("vdel");
    store.get("k".repeat(500)).await.expect("get");
    store.set("", SECRET).await.expect_err("an empty key");
    changes.next().await.expect("the watch continues");

    for (verb, outcome, verdict) in [
        ("Set", "done", "Applied"),
        ("Get", "found", "Applied"),
        ("Set", "not applied", "NotApplied"),
        ("VDel", "removed", "Applied"),
        ("Get", "absent", "Absent"),
    ] {
        let (verb, verdict) = (format!("verb={verb}"), format!("verdict={verdict}"));
        assert!(!log.with(&["span request", &verb, "key=\""]).is_empty(), "{verb}");
        let outcome = format!("outcome=\"{outcome}\"");
        let completed = log.with(&["DEBUG", "completed", &outcome, "elapsed_ms="]);
        assert_eq!(completed.len(), 1, "{outcome}: {completed:?}");
        let event = ["DEBUG", &verb, "client=\"c\"", "verified=true", &verdict, "elapsed_us="];
        assert!(!log.with(&event).is_empty(), "{event:?}");
    }
    assert_eq!(
        log.with(&["record", "id=RequestId("]).len(),
        5,
        "one for each request that was sent"
    );
    assert_eq!(log.with(&["not accepted"]).len(), 1);
    assert_eq!(log.with(&["span request", "(500 bytes)"]).len(), 1, "long keys are shortened");
    assert_eq!(log.with(&["secret"]), [""; 0]);
}
