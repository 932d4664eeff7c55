//! A second store with the same client id takes over from the first.

use crate::place::{Form, everywhere};
use crate::process::Running;

everywhere!(a_standby_takes_over);

fn a_standby_takes_over(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    here.run(&["set", "k", "v"]).version();
    let first = here.take_store();
    let second = Running::start(&mut here.serve());
    assert!(second.line().contains("as client the store"), "it is ready");
    first.end().fails(3, &["another", "client id"]);
    // It starts with nothing, and answers.
    here.run(&["get", "k"]).is(1, "");
    here.run(&["set", "k", "w"]).version();
    here.run(&["get", "k"]).is(0, "w");
    second.signal("-TERM");
    second.end().is(0, "");
}
