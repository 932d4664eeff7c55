use crate::request::By::{self, A, B};
use crate::request::{Part, request};
use crate::trial::{ABSENT, Done, OK, ONE, Trial};

pub(super) async fn set(trial: &mut Trial) -> Done {
    let (nx, plain) = (trial.key("nx"), trial.key("plain"));
    for request in [request!["SET", nx, "v", "NX"], request!["SET", plain, "v"]] {
        let message = trial.message(&request);
        let first = trial.send_and_wait(&request, &message).await?;
        trial.must(first.0.payload == OK, "expected +OK");
        for connection in 0..3 {
            // A reply that arrived before must not be taken for the reply to this request.
            trial.expect_no_notification(A).await?;
            trial.expect_no_reply(A);
            if connection == 2 {
                // Brokers and clients redeliver after a lost connection.
                trial.disconnect(A).await?;
            }
            let again = trial.send_and_wait(&request, &message).await?;
            let same = again.0.payload == first.0.payload && again.timestamp() == first.timestamp();
            trial.must(same, "expected the first answer again, with its version");
        }
    }
    // The repeated reply is still a refusal, although the key is absent by then.
    let request = request!["SET", nx, "w", "NX"];
    let message = trial.message(&request);
    let first = trial.send_and_wait(&request, &message).await?;
    trial.must(first.0.payload != OK, "expected that it is not applied");
    trial.expect(&request!["DEL", nx], ONE).await?;
    let again = trial.send_and_wait(&request, &message).await?;
    trial.must(again.0.payload == first.0.payload, "expected the first answer again");
    trial.expect_value(&nx, None).await.map(drop)
}

pub(super) async fn del(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for removal in [request!["DEL", key], request!["VDEL", key, "v"]] {
        trial.set(&key, "v").await?;
        let message = trial.message(&removal);
        let first = trial.send_and_wait(&removal, &message).await?;
        trial.must(first.0.payload == ONE, "expected :1");
        // A value that another client set in between must stay.
        trial.expect(&request!["SET", key, "v"].by(B), OK).await?;
        let again = trial.send_and_wait(&removal, &message).await?;
        trial.must(again.0.payload == ONE, "expected the first answer again");
        trial.expect_value(&key, Some("v")).await?;
    }
    Ok(())
}

pub(super) async fn notified_once(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["KEYNOTIFY", key].by(B), OK).await?;
    let request = request!["SET", key, "v"];
    let message = trial.message(&request);
    let mut version = None;
    for _ in 0..3 {
        let reply = trial.send_and_wait(&request, &message).await?;
        version = version.or_else(|| reply.timestamp().map(str::to_owned));
    }
    trial.expect_set_notification(B, &key, "v", &version.unwrap_or_default()).await?;
    trial.expect_no_notification(B).await?;
    trial.expect(&request!["KEYNOTIFY", key, "STOP"].by(B), OK).await.map(drop)
}

pub(super) async fn get(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let request = request!["GET", key];
    let message = trial.message(&request);
    let first = trial.send_and_wait(&request, &message).await?;
    trial.must(first.0.payload == ABSENT, "expected $-1");
    trial.set(&key, "v").await?;
    let again = trial.send_and_wait(&request, &message).await?;
    trial.should(*again.0.payload == *b"$1\r\nv\r\n", "expected the value that was set since");
    Ok(())
}

pub(super) async fn watch(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let request = request!["KEYNOTIFY", key].by(B);
    let message = trial.message(&request);
    let first = trial.send_and_wait(&request, &message).await?;
    trial.must(first.0.payload == OK, "expected +OK");
    trial.expect(&request!["KEYNOTIFY", key, "STOP"].by(B), OK).await?;
    let again = trial.send_and_wait(&request, &message).await?;
    trial.should(again.0.payload == OK, "expected +OK again");
    let end = trial.request(&request!["KEYNOTIFY", key, "STOP"].by(B)).await?;
    trial
        .should(end.0.payload == OK, "expected that it was registered again, so that STOP ends it");
    Ok(())
}

/// Correlation data for a case that uses them in two requests.
fn data(trial: &mut Trial, by: By) -> Vec<u8> {
    let message = trial.message(&request!["GET", "k"].by(by));
    message.correlation_data.unwrap_or_default().to_vec()
}

pub(super) async fn other_request(trial: &mut Trial) -> Done {
    let (key, other) = (trial.key("k"), trial.key("other"));
    let data = data(trial, A);
    for key in [&key, &other] {
        let request = request!["SET", key, "v", "NX"].correlation(data.clone());
        trial.expect_by_choice(&request, OK).await?;
    }
    let got = trial.request(&request!["GET", other]).await?;
    trial.should(got.0.payload != ABSENT, "expected that the second request was done too");
    Ok(())
}

pub(super) async fn other_client(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    let mut request = request!["SET", key, "v", "NX"];
    request.correlation = Part::Other(data(trial, A));
    trial.expect(&request, OK).await?;
    trial.not_applied(&request.by(B)).await?;
    Ok(())
}
