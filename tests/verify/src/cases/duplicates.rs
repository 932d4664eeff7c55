use crate::ask::By::{self, A, B};
use crate::ask::{Part, ask};
use crate::trial::{ABSENT, Done, OK, ONE, Trial};

pub(super) async fn set(trial: &mut Trial) -> Done {
    let (nx, plain) = (trial.key("nx"), trial.key("plain"));
    for ask in [ask!["SET", nx, "v", "NX"], ask!["SET", plain, "v"]] {
        let message = trial.message(&ask);
        let first = trial.ask_message(&ask, &message).await?;
        trial.must(first.0.payload == OK, "expected +OK");
        for connection in 0..3 {
            // An answer that is there already is none to what comes now.
            trial.quiet(A).await?;
            trial.nothing_else_answered(A);
            if connection == 2 {
                // Brokers and clients deliver again after a connection was lost.
                trial.disconnect(A).await?;
            }
            let again = trial.ask_message(&ask, &message).await?;
            let same = again.0.payload == first.0.payload && again.timestamp() == first.timestamp();
            trial.must(same, "expected the first answer again, with its version");
        }
    }
    // A refusal stays one, though the key is free by then.
    let ask = ask!["SET", nx, "w", "NX"];
    let message = trial.message(&ask);
    let first = trial.ask_message(&ask, &message).await?;
    trial.must(first.0.payload != OK, "expected that it is not applied");
    trial.expect(&ask!["DEL", nx], ONE).await?;
    let again = trial.ask_message(&ask, &message).await?;
    trial.must(again.0.payload == first.0.payload, "expected the first answer again");
    trial.has(&nx, None).await.map(drop)
}

pub(super) async fn del(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for removal in [ask!["DEL", key], ask!["VDEL", key, "v"]] {
        trial.set(&key, "v").await?;
        let message = trial.message(&removal);
        let first = trial.ask_message(&removal, &message).await?;
        trial.must(first.0.payload == ONE, "expected :1");
        // What another has set meanwhile stays.
        trial.expect(&ask!["SET", key, "v"].by(B), OK).await?;
        let again = trial.ask_message(&removal, &message).await?;
        trial.must(again.0.payload == ONE, "expected the first answer again");
        trial.has(&key, Some("v")).await?;
    }
    Ok(())
}

pub(super) async fn told_once(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["KEYNOTIFY", key].by(B), OK).await?;
    let ask = ask!["SET", key, "v"];
    let message = trial.message(&ask);
    let mut version = None;
    for _ in 0..3 {
        let reply = trial.ask_message(&ask, &message).await?;
        version = version.or_else(|| reply.timestamp().map(str::to_owned));
    }
    trial.told_set(B, &key, "v", &version.unwrap_or_default()).await?;
    trial.quiet(B).await?;
    trial.expect(&ask!["KEYNOTIFY", key, "STOP"].by(B), OK).await.map(drop)
}

pub(super) async fn get(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let ask = ask!["GET", key];
    let message = trial.message(&ask);
    let first = trial.ask_message(&ask, &message).await?;
    trial.must(first.0.payload == ABSENT, "expected $-1");
    trial.set(&key, "v").await?;
    let again = trial.ask_message(&ask, &message).await?;
    trial.may(*again.0.payload == *b"$1\r\nv\r\n", "expected the value that was set since");
    Ok(())
}

pub(super) async fn watch(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let ask = ask!["KEYNOTIFY", key].by(B);
    let message = trial.message(&ask);
    let first = trial.ask_message(&ask, &message).await?;
    trial.must(first.0.payload == OK, "expected +OK");
    trial.expect(&ask!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    let again = trial.ask_message(&ask, &message).await?;
    trial.may(again.0.payload == OK, "expected +OK again");
    let end = trial.ask(&ask!["KEYNOTIFY", key, "STOP"].by(B)).await?;
    trial.may(end.0.payload == OK, "expected that it was registered again, so that STOP ends it");
    Ok(())
}

/// Correlation data that a case gives to two requests.
fn data(trial: &mut Trial, by: By) -> Vec<u8> {
    let message = trial.message(&ask!["GET", "k"].by(by));
    message.correlation_data.unwrap_or_default().to_vec()
}

pub(super) async fn other_request(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("other"));
    let data = data(trial, A);
    for key in [&key, &other] {
        let ask = ask!["SET", key, "v", "NX"].correlation(data.clone());
        trial.chosen(&ask, OK).await?;
    }
    let told = trial.ask(&ask!["GET", other]).await?;
    trial.may(told.0.payload != ABSENT, "expected that the second request was done too");
    Ok(())
}

pub(super) async fn other_client(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut ask = ask!["SET", key, "v", "NX"];
    ask.correlation = Part::Other(data(trial, A));
    trial.expect(&ask, OK).await?;
    trial.not_applied(&ask.by(B)).await?;
    Ok(())
}
