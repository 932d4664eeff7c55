use super::fences::REQUIRED;
use crate::request::request;
use crate::trial::{Done, OK, Trial};

pub(super) async fn grammar_timestamp(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial
        .expect_refusal_by_choice(&request!["SET", key, "v", "XX"].untimed(), "syntax error")
        .await?;
    trial
        .expect_refusal_by_choice(&request!["SET", key].untimed(), "wrong number of arguments")
        .await?;
    // If the store accepts an empty key, its value stays.
    let value = trial.key("no such value");
    let empty = request!["SET", "", value, "NX"].at("x");
    let got = trial.expect_refusal_by_choice(&empty, "the key length is zero").await?;
    if got.0.payload == OK {
        trial.request(&request!["VDEL", "", value]).await?;
    }
    Ok(())
}

pub(super) async fn timestamp_fence(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["SET", key, "v"].token("10:0:verify"), OK).await?;
    trial
        .expect_refusal_by_choice(&request!["SET", key, "w"].untimed(), "missing timestamp")
        .await?;
    trial
        .expect_refusal_by_choice(
            &request!["SET", key, "w"].untimed().token("x"),
            "missing timestamp",
        )
        .await?;
    let ahead = trial.stamp(3_600_000);
    let text = super::clocks::AHEAD;
    trial
        .expect_refusal_by_choice(&request!["SET", key, "w"].at(&ahead).token(&ahead), text)
        .await?;
    trial
        .expect_refusal_by_choice(&request!["SET", key, "w"].at(&ahead).token("9:0:verify"), text)
        .await?;
    Ok(())
}

pub(super) async fn token_fence(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for request in [request!["SET", key, "w"], request!["DEL", key], request!["VDEL", key, "v"]] {
        // The key does not even exist.
        trial.expect_refusal_by_choice(&request.token("x"), "malformed timestamp").await?;
    }
    Ok(())
}

pub(super) async fn fence_condition(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&request!["SET", key, "v"].token("10:0:verify"), OK).await?;
    for request in [
        request!["SET", key, "w", "NX"],
        request!["SET", key, "w", "NEX"],
        request!["VDEL", key, "another"],
    ] {
        trial.expect_refusal_by_choice(&request, REQUIRED).await?;
    }
    Ok(())
}
