//! Tables of expectations.

use statestore_policy::{Cases, Policy};

const POLICY: &str = "
rules:
  - principals: {attributes: [{group: sensors}]}
    brokerResources: [{method: Connect}]
    stateStoreResources: [{method: ReadWrite, keys: ['readings/{principal.username}/*']}]
";

#[test]
fn decisions_match_the_expectations_of_a_table() {
    let table = "
# who may do what
allow  id=lamp user=ann group=sensors  SET readings/ann/lux of today
deny   id=lamp user=ann group=sensors  get readings/bob/lux
allow  id=lamp group=sensors           CONNECT
allow  id=lamp                         CONNECT
allow  id=lamp user=ann group=sensors  FENCE readings/ann/lux of today
allow  id=lamp user=ann group=sensors  fence readings/bob/lux
";
    let policy = Policy::parse(POLICY).unwrap();
    let cases = Cases::parse(table).unwrap().cases;
    let as_expected: Vec<(usize, bool)> = cases
        .iter()
        .map(|case| {
            let decision = case.ask(|principal, action| policy.decide(principal, action));
            (case.line, decision.is_allowed() == case.allowed)
        })
        .collect();
    assert_eq!(as_expected, [(3, true), (4, true), (5, true), (6, false), (7, true), (8, false)]);
}

#[test]
fn invalid_case_is_rejected_with_its_line() {
    for (line, problem) in [
        ("permit id=a CONNECT", "begins with another word than allow or deny"),
        ("allow id=a id=b CONNECT", "contains `id` twice"),
        ("allow g=a g=b CONNECT", "contains `g` twice"),
        ("allow id=a FETCH k", "contains an unknown operation; expected one of CONNECT"),
        ("allow id=a", "contains an unknown operation; expected"),
        ("allow id=a GET", "lacks a key or topic"),
        ("allow id=a CONNECT b", "takes no argument"),
    ] {
        let error = Cases::parse(&format!("\n{line}\n")).expect_err(line);
        assert!(error.to_string().starts_with("line 2: "), "{error}");
        assert!(error.problem.contains(problem), "{error}");
    }
}
