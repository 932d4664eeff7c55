use statestore_policy::{Action, Policy, Principal};

/// Any text is a policy or has a fault that is named with its line; what a policy decides and what
/// rights it gives are the same, whoever asks and for whatever; and nothing is allowed to whom no
/// rule names.
///
/// The first line of the input says who asks for what, the rest is the document: `client id|user
/// name|value of g|object`.
pub fn policy(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    let (asked, document) = text.split_once('\n').unwrap_or(("", text));
    let policy = match Policy::parse(document) {
        Ok(policy) => policy,
        Err(error) => {
            // Of YAML: a carriage return alone is a break too, and what is missing is missed behind
            // the last one.
            let breaks = document.chars().filter(|char| matches!(char, '\n' | '\r')).count();
            assert!((1..=breaks + 2).contains(&error.line), "{error}");
            assert!(!error.path.is_empty() && !error.problem.is_empty(), "{error:?}");
            return;
        }
    };
    for warning in policy.warnings() {
        assert!(warning.line >= 1 && !warning.text.is_empty(), "{warning}");
    }
    let mut parts = asked.split('|');
    let mut part = || parts.next().unwrap_or_default();
    let (client_id, user_name, group, object) = (part(), part(), part(), part());
    let attributes = [("g", group)];
    let principal = Principal { client_id, user_name: Some(user_name), attributes: &attributes };
    let nobody = Principal::default();
    for action in [
        Action::Connect,
        Action::Publish(object),
        Action::Subscribe(object),
        Action::Read(object.as_bytes()),
        Action::Write(object.as_bytes()),
        Action::Fence(object.as_bytes()),
    ] {
        let decision = policy.decide(&principal, &action);
        assert_eq!(decision.is_allowed(), policy.rights(&principal).allow(&action), "{decision}");
        assert!(!policy.decide(&nobody, &action).is_allowed(), "nobody has a name");
    }
}
