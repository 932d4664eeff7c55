//! Decisions and rights compared with the oracle.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use statestore_policy::{Action, Policy, Principal};

use crate::naive::{Rule, Who, allows};

const VALUES: [&str; 8] = ["a", "b", "*", "?", "[", "a/b", "+", ""];

fn value() -> impl Strategy<Value = String> {
    select(VALUES.to_vec()).prop_map(Into::into)
}

fn attributes() -> impl Strategy<Value = Vec<(String, String)>> {
    option::of(value()).prop_flat_map(|group| {
        option::of(value()).prop_map(move |other| {
            let pair = |name: &str, value: Option<String>| value.map(|value| (name.into(), value));
            [pair("g", group.clone()), pair("h", other)].into_iter().flatten().collect()
        })
    })
}

fn who() -> impl Strategy<Value = Who> {
    (value(), option::of(value()), attributes()).prop_map(|(client_id, user, attributes)| Who {
        client_id,
        user,
        attributes,
    })
}

const PLACES: [&str; 3] =
    ["{principal.clientId}", "{principal.username}", "{principal.attributes.g}"];

fn key_text() -> impl Strategy<Value = String> {
    let pieces = [&["a", "b", "/", "*x", "?", "x"][..], &PLACES].concat();
    vec(select(pieces), 1..4).prop_map(|pieces| pieces.concat())
}

fn filter() -> impl Strategy<Value = String> {
    let levels = [&["a", "b", "+", "$s"][..], &PLACES].concat();
    (vec(select(levels), 1..4), any::<bool>())
        .prop_map(|(levels, is_open)| levels.join("/") + if is_open { "/#" } else { "" })
}

fn resource() -> impl Strategy<Value = (&'static str, &'static str, Vec<String>)> {
    let keys = (
        select(vec!["Read", "Write", "Write", "ReadWrite", "Fence"]),
        select(vec!["Pattern", "String"]),
        vec(key_text(), 1..3),
    );
    prop_oneof![keys, (Just("Publish"), Just(""), vec(filter(), 1..3))]
}

fn rule() -> impl Strategy<Value = Rule> {
    let name = select(vec!["a", "b", "*", "+"]).prop_map(Into::into);
    let attributes = attributes().prop_filter("a table is not empty", |all| !all.is_empty());
    (vec(name, 0..3), vec(attributes, 0..2), vec(resource(), 0..3))
        .prop_map(|(users, attributes, resources)| Rule { users, attributes, resources })
}

/// The rules as a document in JSON.
fn document(rules: &[Rule]) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let text = |text: &String| format!("{text:?}");
    let texts = |all: &[String]| list(all.iter().map(text).collect());
    let rules = rules.iter().map(|rule| {
        let table = |pairs: &Vec<(String, String)>| {
            let pairs: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{name:?}: {value:?}")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        let attributes = list(rule.attributes.iter().map(table).collect());
        let resources = |of_keys: bool| {
            let own = rule.resources.iter().filter(|one| one.1.is_empty() != of_keys);
            list(
                own.map(|(method, key_type, all)| match of_keys {
                    true => format!(
                        "{{\"method\": {method:?}, \"keyType\": {key_type:?}, \"keys\": {}}}",
                        texts(all)
                    ),
                    false => format!("{{\"method\": {method:?}, \"topics\": {}}}", texts(all)),
                })
                .collect(),
            )
        };
        format!(
            "{{\"principals\": {{\"usernames\": {}, \"attributes\": {attributes}}}, \
             \"brokerResources\": {}, \"stateStoreResources\": {}}}",
            texts(&rule.users),
            resources(false),
            resources(true)
        )
    });
    format!("{{\"rules\": {}}}", list(rules.collect()))
}

fn object() -> impl Strategy<Value = String> {
    let pieces = vec!["a", "b", "x", "/", "*", "?", "[", "+", "$s", "a/b"];
    vec(select(pieces), 1..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn decisions_and_rights_equal_those_of_the_oracle(
        rules in vec(rule(), 0..4),
        who in who(),
        objects in vec(object(), 1..6),
    ) {
        let document = document(&rules);
        let policy = Policy::parse(&document)
            .map_err(|error| TestCaseError::fail(format!("{document}: {error}")))?;
        let attributes: Vec<(&str, &str)> =
            who.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let principal = Principal {
            client_id: &who.client_id,
            user_name: who.user.as_deref(),
            attributes: &attributes,
        };
        let rights = policy.rights(&principal);
        for object in &objects {
            for (method, action) in [
                ("Publish", Action::Publish(object)),
                ("Read", Action::Read(object.as_bytes())),
                ("Write", Action::Write(object.as_bytes())),
                ("Fence", Action::Fence(object.as_bytes())),
            ] {
                let expected = allows(&rules, &who, method, object);
                let decision = policy.decide(&principal, &action);
                prop_assert_eq!(
                    decision.is_allowed(), expected, "{} {:?} {:?}: {}", document, who, action, decision
                );
                prop_assert_eq!(rights.allow(&action), expected);
            }
        }
    }

    /// If a filter covers another, it matches every topic that the other matches.
    #[test]
    fn allowed_subscription_receives_only_allowed_topics(own in filter(), other in filter(), topic in object()) {
        let document = format!(
            "rules: [{{principals: {{usernames: ['*']}}, brokerResources: [{{method: Subscribe, \
             topics: ['{own}']}}, \
             {{method: Publish, topics: ['{own}']}}]}}]"
        );
        let policy = Policy::parse(&document).unwrap();
        let principal = Principal { client_id: "a", user_name: Some("b"), attributes: &[("g", "x")] };
        let other = other.replace(PLACES[0], "a").replace(PLACES[1], "b").replace(PLACES[2], "x");
        let is_allowed = policy.decide(&principal, &Action::Subscribe(&other)).is_allowed();
        if is_allowed && statestore_mqtt::topic::matches(&other, &topic) {
            prop_assert!(policy.decide(&principal, &Action::Publish(&topic)).is_allowed());
        }
    }
}
