//! `statestore verify`: the conformance kit as a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use statestore_testkit::brokers::Mosquitto;
use statestore_testkit::conformance::suite::EXTERNAL_BROKER;
use statestore_testkit::wire::raw::Raw;

use crate::deployment::{Mode, in_each_mode};
use crate::process::{run, statestore};

in_each_mode!(
    store_passes_all_rules,
    section_and_case_can_be_selected,
    store_that_breaks_rules_fails_and_its_test_keys_are_deleted,
    interrupted_run_deletes_its_keys,
    end_of_the_store_ends_the_run,
);

/// Returns the cases in which the store differs. The kit's tests of the transports list them too.
fn differing(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Embedded => &[],
        Mode::External => &EXTERNAL_BROKER,
    }
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

fn store_passes_all_rules(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    here.run(&["set", "another", "v"]).version();
    let ended = here.run(&["verify", "--thorough", "--output", "json"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    let mut lines = objects(ended.text());
    let last = lines.pop().expect("a summary");
    for line in &lines {
        let name = line["case"].as_str().expect("a name");
        let expected = if differing(mode).contains(&name) { "differs" } else { "pass" };
        assert_eq!(line["verdict"], expected, "{line:#}");
        assert_eq!(line["findings"].as_array().is_none_or(Vec::is_empty), expected == "pass");
    }
    let summary = &last["summary"];
    assert_eq!(summary["rules"], lines.len());
    assert_eq!(summary["fail"], 0);
    assert_eq!(summary["dialect"], "each client in its own");
    assert_eq!(summary["keys"]["left"], 0);
    assert_eq!(summary["moves_versions"], true);
    assert!(lines.len() > 100 && summary["requests"].as_u64().is_some_and(|count| count < 1_500));
    // All keys of the run are deleted, and no others.
    here.run(&["keys", "*"]).is(0, "another\n");
}

#[test]
fn documentation_has_the_number_of_requests() {
    let Some(here) = Mode::Embedded.start(&[]) else { return };
    let lines = objects(here.run(&["verify", "--output", "json"]).text());
    let requests = lines.last().and_then(|last| last["summary"]["requests"].as_u64());
    let requests = requests.expect("a number");
    let help = run(statestore().args(["verify", "--help"]));
    for text in [help.text(), include_str!("../../../docs/compatibility.md")] {
        let (_, number) = text.split_once("sends about ").expect("a number of requests");
        let number = number.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let number = number.expect("a number of requests");
        assert!(number.abs_diff(requests) <= 50, "{number} are documented, {requests} were sent");
    }
}

fn section_and_case_can_be_selected(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let ended = here.run(&["verify", "--rule", "order", "--rule", "value/vdel"]);
    let lines: Vec<&str> = ended.text().lines().collect();
    assert_eq!(ended.code, Some(0));
    assert!(lines[0].starts_with("pass     value/vdel"), "{lines:?}");
    assert!(lines.iter().filter(|line| line.contains("order/")).count() == 4, "{lines:?}");
    assert!(ended.text().contains("5 rules: 5 pass, 0 fail, 0 differ, 0 skipped"), "{lines:?}");
    assert!(!ended.text().contains("moved the versions"), "{lines:?}");
    let moves = here.run(&["verify", "--rule", "clock/nearly-ahead"]);
    assert!(
        moves.text().contains("moved the versions of this store up to 40 s ahead"),
        "{moves:?}"
    );
    let junit =
        here.run(&["verify", "--rule", "order", "--rule", "request/qos-2", "--output", "junit"]);
    assert_eq!(junit.code, Some(0));
    let head = "<testsuites name=\"statestore verify\" tests=\"5\" skipped=\"0\" failures=\"0\" \
                errors=\"0\"";
    assert!(junit.text().contains(head), "{}", junit.text());
    assert!(junit.text().contains("<testcase name=\"fence-condition\" classname=\"order\""));
    let differs = differing(mode).contains(&"request/qos-2");
    assert_eq!(junit.err.contains("request/qos-2"), differs, "{}", junit.err);
    let rest = here.run(&["verify", "--rule", "order", "--skip", "order/fence-condition"]);
    assert!(rest.text().contains("3 rules: 3 pass"), "{}", rest.text());
}

fn store_that_breaks_rules_fails_and_its_test_keys_are_deleted(mode: Mode) {
    let Some(here) = mode.start(&["--max-keys", "1"]) else { return };
    let ended = here.run(&["verify", "--rule", "value", "--rule", "order"]);
    assert_eq!(ended.code, Some(1), "{}", ended.text());
    let lines: Vec<&str> = ended.text().lines().collect();
    let at = lines.iter().position(|line| line.starts_with("fail     value/keys-differ"));
    let about = &lines[at.expect("a failure")..][1..5];
    assert!(about[0].ends_with("Keys differ by every byte, also by case (the specification)"));
    assert_eq!(about[1].trim(), r"fail: expected +OK\r\n, but the store is full");
    assert!(about[2].trim().starts_with(r"request  *3\r\n$3\r\nSET\r\n$"), "{about:?}");
    assert_eq!(about[3].trim(), r"response -ERR the quota has been exceeded\r\n");
    here.run(&["keys", "*"]).is(1, "");
    let junit = here.run(&["verify", "--rule", "value/keys-differ", "--output", "junit"]);
    assert_eq!(junit.code, Some(1));
    assert!(junit.text().contains("<failure message=\"expected +OK"), "{}", junit.text());
}

fn interrupted_run_deletes_its_keys(mode: Mode) {
    let Some(here) = mode.start(&[]) else { return };
    let running = here.spawn(&["verify", "--output", "json"]);
    // Some keys are set by then.
    while running.json()["case"] != "value/large" {}
    running.signal("-TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(143));
    let summary = &objects(ended.text()).pop().expect("a summary")["summary"];
    assert_eq!(summary["keys"]["left"], 0);
    assert!(summary["skipped"].as_u64().is_some_and(|count| count > 50), "{summary}");
    assert!(ended.err.contains("stopping"), "{}", ended.err);
    here.run(&["keys", "*"]).is(1, "");
}

fn end_of_the_store_ends_the_run(mode: Mode) {
    let Some(mut here) = mode.start(&[]) else { return };
    let running = here.spawn(&["verify", "--timeout", "2s", "--output", "json"]);
    while running.json()["case"] != "value/large" {}
    here.kill_store();
    let ended = running.end();
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(ended.err.contains("stopped responding") && ended.err.contains("may be left"));
    let summary = &objects(ended.text()).pop().expect("a summary")["summary"];
    assert!(summary["fail"].as_u64().is_some_and(|count| (1..=4).contains(&count)), "{summary}");
    assert!(summary["keys"]["left"].as_u64().is_some_and(|count| count > 0), "{summary}");
}

#[test]
fn rules_are_listed_without_a_store() {
    let list = |more: &[&str]| run(statestore().args(["verify", "--list"]).args(more));
    let (text, json) = (list(&[]), list(&["--output", "json"]));
    assert_eq!((text.code, json.code), (Some(0), Some(0)));
    assert_eq!(text.text().lines().count(), objects(json.text()).len());
    assert!(text.text().contains("fence/lower                spec    A token that is lower"));
    assert_eq!(list(&["--rule", "order"]).text().lines().count(), 4);
    list(&["--rule", "orders"]).fails(2, &["orders", "--list"]);
}

#[test]
fn missing_store_is_reported_before_any_rule() {
    let verify = |more: &[&str]| run(statestore().args(["verify", "--timeout", "2s"]).args(more));
    verify(&["--broker", "mqtt://127.0.0.1:1"]).fails(3, &["mqtt://127.0.0.1:1", "--broker"]);
    verify(&["--broker", "127.0.0.1"]).fails(2, &["mqtt://HOST:PORT"]);
    if let Some(broker) = Mosquitto::start("verify-alone") {
        let url = format!("mqtt://127.0.0.1:{}", broker.port());
        verify(&["--broker", &url]).fails(3, &["statestore serve"]);
    }
}

#[test]
fn verify_ends_if_responses_are_malformed() {
    let Some(broker) = Mosquitto::start("verify-malformed") else { return };
    let mut fake = Raw::connect(broker.port(), "fake");
    assert!(!fake.subscribe(statestore_proto::topic::REQUEST).is_error());
    let url = format!("mqtt://127.0.0.1:{}", broker.port());
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    std::thread::spawn(move || {
        loop {
            let request = fake.message();
            counted.fetch_add(1, Ordering::Relaxed);
            fake.reply_to(&request, b"hello");
        }
    });
    let ended = run(statestore().args(["verify", "--timeout", "2s", "--broker", &url]));
    let requests = requests.load(Ordering::Relaxed);
    assert!((10..40).contains(&requests), "{requests} requests: {ended:?}");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("malformed"), "{ended:?}");
}
