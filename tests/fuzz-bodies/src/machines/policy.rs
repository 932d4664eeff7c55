use statestore_policy::{Action, Policy, Principal};

/// Oracle: any text is either a policy, or has an error that is reported with its line. Decisions
/// and rights are the same for every principal and object. A principal that no rule names is
/// allowed nothing.
///
/// Input: the principal and the object in the form `client id|user name|value of g|object`, a
/// newline and the document.
pub fn policy(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    let (asked, document) = text.split_once('\n').unwrap_or(("", text));
    let policy = match Policy::parse(document) {
        Ok(policy) => policy,
        Err(error) => {
            // In YAML, a lone carriage return is a line break too. A missing element is reported
            // after the last line.
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
    let unnamed = Principal::default();
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
        assert!(!policy.decide(&unnamed, &action).is_allowed(), "no rule names this principal");
    }
}
