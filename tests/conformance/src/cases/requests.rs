use tokio::time::timeout;

use crate::request::{Part, REQUEST, RESERVED, request};
use crate::trial::{ABSENT, Done, OK, Reply, Stop, Trial, in_time};

pub(super) async fn qos_0(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let got = trial.request(&request!["SET", key, "v"].qos(0)).await;
    refused(trial, got, "the request must be published with QoS 1")?;
    trial.expect_value(&key, None).await.map(drop)
}

/// A store that subscribes at QoS 1 receives the request at QoS 1, and cannot see the QoS 2.
pub(super) async fn qos_2(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let got = trial.request(&request!["SET", key, "v"].qos(2)).await;
    let text = "the request must be published with QoS 1";
    if matches!(&got, Ok(reply) if reply.0.payload == OK) {
        trial.should(
            false,
            format_args!("expected -ERR {text}; the broker may hide the QoS from the store"),
        );
        return Ok(());
    }
    refused(trial, got, text)?;
    trial.expect_value(&key, None).await.map(drop)
}

pub(super) async fn no_correlation(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut request = request!["SET", key, "v"];
    request.correlation = Part::None;
    let got = trial.request(&request).await;
    refused(trial, got, "missing correlation data")?;
    trial.expect_value(&key, None).await.map(drop)
}

/// A missing reply is as good as an error. The text of the error is this project's choice.
fn refused(trial: &mut Trial, got: Result<Reply, Stop>, text: &str) -> Done {
    match got {
        Ok(reply) if reply.error().is_some() => {
            let ours = reply.error() == Some(text);
            trial.should(ours, format_args!("expected -ERR {text}"));
        }
        Ok(_) => trial.must(false, "expected an error"),
        Err(Stop::Missing(what)) => {
            trial.should(false, format_args!("expected -ERR {text}; {what}"))
        }
        Err(stop) => return Err(stop),
    }
    Ok(())
}

pub(super) async fn no_response_topic(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut request = request!["SET", key, "v"];
    request.response_topic = Part::None;
    trial.send(&request).await?;
    let got = trial.request(&request!["GET", key]).await?;
    trial.should(got.0.payload == ABSENT, "expected that nothing was set");
    Ok(())
}

pub(super) async fn topic_as_response(trial: &mut Trial) -> Done {
    forbidden(trial, REQUEST, "offender-1").await
}

pub(super) async fn reserved_response(trial: &mut Trial) -> Done {
    forbidden(trial, &format!("{RESERVED}/00/command/notify/00"), "offender-2").await
}

async fn forbidden(trial: &mut Trial, topic: &str, name: &str) -> Done {
    let key = trial.key("k");
    let (connector, id) = trial.extra_client(name);
    let message = trial.message_of(&request!["SET", key, "v"].response_topic(topic), &id);
    let mut offender = in_time(trial.timeout, connector.connect(&id)).await?;
    // The broker may disconnect before it acknowledges.
    let acknowledged = timeout(trial.patience(), offender.publish(&message)).await;
    let mut gone = matches!(acknowledged, Ok(Err(_)));
    trial.expect_value(&key, None).await?;
    if !gone {
        let ended = async { while offender.next().await.is_ok() {} };
        gone = timeout(trial.patience(), ended).await.is_ok();
    }
    trial.should(gone, "expected a disconnect, which a store outside the broker cannot do");
    Ok(())
}

pub(super) async fn levels_of_response(trial: &mut Trial) -> Done {
    // The broker may disconnect a store that publishes to such a topic.
    for (name, topic) in [("levels", vec!["l"; 201].join("/")), ("dollar", "$SYS/verify".into())] {
        let key = trial.key(name);
        let (connector, id) = trial.extra_client(name);
        let message = trial.message_of(&request!["SET", key, "v"].response_topic(topic), &id);
        let mut connection = in_time(trial.timeout, connector.connect(&id)).await?;
        let _ = timeout(trial.patience(), connection.publish(&message)).await;
        let got = trial.request(&request!["GET", key]).await?;
        trial.should(got.0.payload == ABSENT, "expected that nothing was set");
    }
    Ok(())
}

pub(super) async fn other_properties(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let request = request!["SET", key, "v"]
        .property("$partition", "here")
        .property("$high_priority", "")
        .property("aio-persistence", "true")
        .property("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    trial.expect(&request, OK).await?;
    trial.expect_value(&key, Some("v")).await?;
    Ok(())
}

/// The chunk is a request by chance.
pub(super) async fn chunks(trial: &mut Trial) -> Done {
    const TEXT: &str = "chunked requests are not supported";
    let key = trial.key("k");
    match trial.request(&request!["SET", key, "v"].property("__chunk", "0:2:4096")).await {
        Ok(reply) => {
            trial.should(reply.error() == Some(TEXT), format_args!("expected -ERR {TEXT}"))
        }
        Err(Stop::Missing(what)) => {
            trial.should(false, format_args!("expected -ERR {TEXT}; {what}"))
        }
        Err(stop) => return Err(stop),
    }
    let got = trial.request(&request!["GET", key]).await?;
    trial.should(got.0.payload == ABSENT, "expected that nothing was set");
    Ok(())
}
