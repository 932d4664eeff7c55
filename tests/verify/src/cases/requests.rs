use tokio::time::timeout;

use crate::ask::Part;
use crate::ask::{REQUEST, RESERVED, ask};
use crate::trial::{ABSENT, Done, OK, Reply, Stop, Trial, in_time};

pub(super) async fn qos_0(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let told = trial.ask(&ask!["SET", key, "v"].qos(0)).await;
    refused(trial, told, "the request must be published with QoS 1")?;
    trial.has(&key, None).await.map(drop)
}

/// Who subscribes at QoS 1 cannot know that it was 2.
pub(super) async fn qos_2(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let told = trial.ask(&ask!["SET", key, "v"].qos(2)).await;
    let text = "the request must be published with QoS 1";
    if matches!(&told, Ok(reply) if reply.0.payload == OK) {
        trial.may(
            false,
            format_args!("expected -ERR {text}, which its broker may not tell a store"),
        );
        return Ok(());
    }
    refused(trial, told, text)?;
    trial.has(&key, None).await.map(drop)
}

pub(super) async fn no_correlation(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut ask = ask!["SET", key, "v"];
    ask.correlation = Part::None;
    let told = trial.ask(&ask).await;
    refused(trial, told, "missing correlation data")?;
    trial.has(&key, None).await.map(drop)
}

/// No answer is as good as an error, and its text is ours.
fn refused(trial: &mut Trial, told: Result<Reply, Stop>, text: &str) -> Done {
    match told {
        Ok(reply) if reply.error().is_some() => {
            let ours = reply.error() == Some(text);
            trial.may(ours, format_args!("expected -ERR {text}"));
        }
        Ok(_) => trial.must(false, "expected an error"),
        Err(Stop::Missing(what)) => trial.may(false, format_args!("expected -ERR {text}; {what}")),
        Err(stop) => return Err(stop),
    }
    Ok(())
}

pub(super) async fn no_response_topic(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut ask = ask!["SET", key, "v"];
    ask.response_topic = Part::None;
    trial.send(&ask).await?;
    let told = trial.ask(&ask!["GET", key]).await?;
    trial.may(told.0.payload == ABSENT, "expected that nothing was set");
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
    let (place, id) = trial.stranger(name);
    let message = trial.message_of(&ask!["SET", key, "v"].answered_on(topic), &id);
    let mut offender = in_time(trial.timeout, place.connect(&id)).await?;
    // The broker may be quicker to disconnect than to acknowledge.
    let acknowledged = timeout(trial.patience(), offender.publish(&message)).await;
    let mut gone = matches!(acknowledged, Ok(Err(_)));
    trial.has(&key, None).await?;
    if !gone {
        let ended = async { while offender.next().await.is_ok() {} };
        gone = timeout(trial.patience(), ended).await.is_ok();
    }
    trial.may(gone, "expected that the client is disconnected, which a store that is no part of its broker cannot do");
    Ok(())
}

pub(super) async fn levels_of_response(trial: &mut Trial) -> Done {
    // A broker may end the connection of a store that publishes there.
    for (name, topic) in [("levels", vec!["l"; 201].join("/")), ("dollar", "$SYS/verify".into())] {
        let key = trial.key(name);
        let (place, id) = trial.stranger(name);
        let message = trial.message_of(&ask!["SET", key, "v"].answered_on(topic), &id);
        let mut connection = in_time(trial.timeout, place.connect(&id)).await?;
        let _ = timeout(trial.patience(), connection.publish(&message)).await;
        let told = trial.ask(&ask!["GET", key]).await?;
        trial.may(told.0.payload == ABSENT, "expected that nothing was set");
    }
    Ok(())
}

pub(super) async fn other_properties(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let ask = ask!["SET", key, "v"]
        .property("$partition", "here")
        .property("$high_priority", "")
        .property("aio-persistence", "true")
        .property("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    trial.expect(&ask, OK).await?;
    trial.has(&key, Some("v")).await?;
    Ok(())
}
