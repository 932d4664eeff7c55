//! What a log is told of requests, and what never.

use statestore_loopback::Hub;
use statestore_tests::log::Log;

use crate::both;

const SECRET: &str = "a secret value";

#[tokio::test(start_paused = true)]
async fn requests_are_told_on_both_sides_and_values_never() {
    let log = Log::listen();
    let broker = Hub::new();
    let (_service, store) = both(&broker).await;
    let mut changes = store.watch("thermostat").await.expect("watch");
    store.set("thermostat", SECRET).await.expect("set");
    assert!(store.get("thermostat").await.expect("get").is_some());
    assert!(store.set("thermostat", SECRET).if_absent().await.expect("an answer").is_none());
    store.vdel("thermostat", SECRET).await.expect("vdel");
    store.get("k".repeat(500)).await.expect("get");
    store.set("", SECRET).await.expect_err("an empty key");
    changes.next().await.expect("it goes on");

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
        let told = ["DEBUG", &verb, "client=\"c\"", "verified=true", &verdict, "elapsed_us="];
        assert!(!log.with(&told).is_empty(), "{told:?}");
    }
    assert_eq!(log.with(&["record", "id=RequestId("]).len(), 5, "one for each that was sent");
    assert_eq!(log.with(&["not accepted"]).len(), 1);
    assert_eq!(log.with(&["span request", "(500 bytes)"]).len(), 1, "long keys are cut");
    assert_eq!(log.with(&["secret"]), [""; 0]);
}
