use crate::ask::By::A;
use crate::ask::{Dialect, ask};
use crate::trial::{ABSENT, Done, OK, Trial, ZERO};

pub(super) async fn topic(trial: &mut Trial) -> Done {
    // That both are right is how an answer is known.
    let key = trial.key("k");
    for dialect in Dialect::BOTH {
        trial.expect(&ask!["GET", key].dialect(dialect), ABSENT).await?;
    }
    // And no other answer.
    trial.quiet(A).await
}

pub(super) async fn properties(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for ask in [
        ask!["SET", key, "v"],
        ask!["SET", key, "v", "NX"],
        ask!["GET", key],
        ask!["DEL", key],
        ask!["DEL", key],
        ask!["GET", key],
        ask!["NO SUCH VERB", key],
        ask!["KEYNOTIFY", key],
        ask!["KEYNOTIFY", key, "STOP"],
    ] {
        let reply = trial.ask(&ask).await?.0;
        let status = reply.property("__stat").unwrap_or("none");
        trial.must(status == "200", format_args!("expected __stat 200, got {status}"));
        trial.must(reply.qos == 1, format_args!("expected QoS 1, got {}", reply.qos));
        trial.must(!reply.retain, "a reply is not retained");
        let content = reply.content_type.as_deref();
        let shown = content.unwrap_or("none").to_owned();
        trial.must(
            matches!(content, None | Some("application/octet-stream")),
            format_args!("expected no content type or application/octet-stream, got {shown}"),
        );
        let version = reply.property("__protVer");
        let shown = version.unwrap_or("none").to_owned();
        trial.must(
            matches!(version, None | Some("1.0")),
            format_args!("expected no __protVer or 1.0, got {shown}"),
        );
    }
    Ok(())
}

pub(super) async fn any_topic(trial: &mut Trial) -> Done {
    let (key, id) = (trial.key("k"), trial.client_id(A));
    trial.subscribe(A, &format!("clients/{id}/#")).await?;
    for topic in [
        format!("clients/{id}/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"),
        format!(
            "clients/{id}/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke/response"
        ),
        format!("clients/{id}/replies"),
    ] {
        trial.expect(&ask!["GET", key].answered_on(topic), ABSENT).await?;
    }
    trial.disconnect(A).await
}

pub(super) async fn correlation(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for data in [&[0][..], &[0xff; 15], b"\r\n$-1\r\n", &[7; 17], &[9; 500]] {
        trial.expect(&ask!["DEL", key].correlation(data), ZERO).await?;
    }
    // Empty is there, and not absent.
    let empty = trial.ask(&ask!["DEL", key].correlation([])).await?;
    trial.may(empty.0.payload == ZERO, "expected :0 to a request with empty correlation data");
    Ok(())
}

pub(super) async fn expiry(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut ask = ask!["SET", key, "v"];
    ask.expiry = Some(30);
    let reply = trial.expect(&ask, OK).await?;
    let left = reply.0.message_expiry;
    trial.may(
        left.is_some_and(|left| (1..=30).contains(&left)),
        format_args!("expected a message expiry of 1 to 30 seconds, got {}", seconds(left)),
    );
    ask.expiry = None;
    let left = trial.expect(&ask, OK).await?.0.message_expiry;
    trial.may(left.is_none(), format_args!("expected no message expiry, got {}", seconds(left)));
    Ok(())
}

fn seconds(expiry: Option<u32>) -> String {
    expiry.map_or_else(|| "none".into(), |seconds| seconds.to_string())
}
