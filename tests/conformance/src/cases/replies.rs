use crate::request::By::A;
use crate::request::{Dialect, request};
use crate::trial::{ABSENT, Done, OK, Trial, ZERO};

pub(super) async fn topic(trial: &mut Trial) -> Done {
    // A message is accepted as the reply only if topic and correlation data match.
    let key = trial.key("k");
    for dialect in Dialect::BOTH {
        trial.expect(&request!["GET", key].dialect(dialect), ABSENT).await?;
    }
    // No second reply arrives.
    trial.expect_no_notification(A).await
}

pub(super) async fn properties(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for request in [
        request!["SET", key, "v"],
        request!["SET", key, "v", "NX"],
        request!["GET", key],
        request!["DEL", key],
        request!["DEL", key],
        request!["GET", key],
        request!["NO SUCH VERB", key],
        request!["KEYNOTIFY", key],
        request!["KEYNOTIFY", key, "STOP"],
    ] {
        let reply = trial.request(&request).await?.0;
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
        trial.expect(&request!["GET", key].response_topic(topic), ABSENT).await?;
    }
    trial.disconnect(A).await
}

pub(super) async fn correlation(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for data in [&[0][..], &[0xff; 15], b"\r\n$-1\r\n", &[7; 17], &[9; 500]] {
        trial.expect(&request!["DEL", key].correlation(data), ZERO).await?;
    }
    // Empty correlation data differ from absent ones.
    let empty = trial.request(&request!["DEL", key].correlation([])).await?;
    trial.should(empty.0.payload == ZERO, "expected :0 to a request with empty correlation data");
    Ok(())
}

pub(super) async fn expiry(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut request = request!["SET", key, "v"];
    request.expiry = Some(30);
    let reply = trial.expect(&request, OK).await?;
    let left = reply.0.message_expiry;
    trial.should(
        left.is_some_and(|left| (1..=30).contains(&left)),
        format_args!("expected a message expiry of 1 to 30 seconds, got {}", seconds(left)),
    );
    request.expiry = None;
    let left = trial.expect(&request, OK).await?.0.message_expiry;
    trial.should(left.is_none(), format_args!("expected no message expiry, got {}", seconds(left)));
    Ok(())
}

fn seconds(expiry: Option<u32>) -> String {
    expiry.map_or_else(|| "none".into(), |seconds| seconds.to_string())
}
