//! The conformance suite: this store passes it, and each deliberately broken store fails its case.

mod broken;
mod delayed;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_sim::Interceptor;
use statestore_testkit::conformance::suite::{Loopback, assert_conformant, every_case, some_cases};
use statestore_tokio::StoreService;
use statestore_verify::{CASES, Source, Verdict};

/// Cases that a store with an external broker cannot pass: delivery without a subscription.
const EXTERNAL: [&str; 1] = ["watch/direct"];

/// A store whose clients use an interceptor, in both directions.
async fn served(interceptor: Option<Interceptor>) -> (Arc<Loopback>, StoreService) {
    let hub = Hub::new();
    let service = StoreService::builder().spawn(hub.store_link("statestore"));
    service.wait_connected().await.expect("the store connects");
    (Arc::new(Loopback::new(hub, interceptor)), service)
}

#[tokio::test(start_paused = true)]
async fn store_passes_every_case() {
    let (connector, service) = served(None).await;
    let report = every_case(connector).await;
    assert_conformant(&report, &EXTERNAL);
    assert_eq!(service.stats().keys, 0, "everything was removed");
    assert!(report.requests > 500, "{} requests", report.requests);
}

#[tokio::test(start_paused = true)]
async fn each_broken_store_fails_its_case() {
    let all = broken::all();
    // This store fails the missing case as well, with this external broker.
    let meant: BTreeSet<_> = all.iter().map(|broken| broken.case).chain(EXTERNAL).collect();
    assert_eq!(
        meant,
        CASES.iter().map(|case| case.name).collect(),
        "each case has a broken store that fails it"
    );
    let mut undetected = String::new();
    for broken::Broken { name, case: meant, verdict, interceptor } in all {
        let case = CASES.iter().find(|case| case.name == meant).expect("a case");
        let (connector, _service) = served(Some(interceptor)).await;
        let report = some_cases(connector, &[case]).await;
        let found = &report.cases[0];
        if found.verdict != verdict {
            let (verdict, findings) = (found.verdict.name(), &found.findings);
            let _ = writeln!(undetected, "{name}: {meant} is {verdict}: {findings:#?}");
        }
    }
    assert!(undetected.is_empty(), "{undetected}");
}

#[tokio::test(start_paused = true)]
async fn every_case_has_a_section_and_a_unique_name_and_rule() {
    let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CASES.len());
    let mut rules: Vec<_> = CASES.iter().map(|case| case.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    assert_eq!(rules.len(), CASES.len());
    for case in CASES {
        let (section, _) = case.name.split_once('/').expect("a section");
        assert!(case.is_named(section) && case.is_named(case.name) && !case.is_named("sect"));
        assert!(!case.rule.ends_with('.'), "{}", case.rule);
    }
    assert!(CASES.iter().any(|case| case.source == Source::Choice));
}

#[tokio::test(start_paused = true)]
async fn run_without_a_store_or_broker_fails_at_the_start() {
    use statestore_verify::{Run, Settings, Unreachable};

    let hub = Hub::new();
    let settings = || Settings { timeout: Duration::from_secs(1), ..Settings::new("verify") };
    let connector = Arc::new(Loopback::new(hub.clone(), None));
    assert_eq!(
        Run::start(connector.clone(), settings()).await.err(),
        Some(Unreachable::Store("no reply in time".into()))
    );
    hub.stop();
    let down = Run::start(connector, settings()).await.err();
    assert_eq!(down, Some(Unreachable::Broker("the broker is down".into())));
}

#[tokio::test(start_paused = true)]
async fn store_that_ends_during_a_run_fails_the_remaining_cases() {
    use statestore_verify::{Run, Settings};

    let (connector, service) = served(None).await;
    let mut run = Run::start(connector, Settings::new("verify")).await.expect("a store");
    let case = |name| CASES.iter().find(|case| case.name == name).expect("a case");
    run.case(case("value/set-get")).await;
    service.shutdown().await;
    for name in ["value/set-get", "watch/set", "scan/keys"] {
        assert_eq!(run.case(case(name)).await.verdict, Verdict::Fail, "{name}");
    }
    let report = run.finish().await;
    assert!(!report.left.is_empty(), "what was written could not be removed");
}

#[tokio::test(start_paused = true)]
async fn clean_up_of_invented_keys_is_bounded() {
    let mut pages = 0;
    let interceptor: Interceptor = Box::new(move |message| {
        if message.payload.starts_with(b"*1\r\n*") && message.correlation_data.is_some() {
            pages += 1;
            let keys = (0..3_000).map(|number| format!("$12\r\nverify/{pages:01}{number:04}\r\n"));
            let page = format!("*2\r\n*3000\r\n{}$1\r\nt\r\n", keys.collect::<String>());
            message.payload = page.into();
        }
    });
    let (connector, _service) = served(Some(interceptor)).await;
    let case = CASES.iter().find(|case| case.name == "value/set-get").expect("a case");
    let report = some_cases(connector, &[case]).await;
    assert!((1_000..5_000).contains(&report.requests), "{} requests", report.requests);
    assert!(report.left.is_empty(), "{:?}", report.left);
}
