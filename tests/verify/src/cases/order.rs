use super::fences::REQUIRED;
use crate::ask::ask;
use crate::trial::{Done, OK, Trial};

pub(super) async fn grammar_timestamp(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.chosen_refusal(&ask!["SET", key, "v", "XX"].untimed(), "syntax error").await?;
    trial.chosen_refusal(&ask!["SET", key].untimed(), "wrong number of arguments").await?;
    // Where there is an empty key, its value stays.
    let value = trial.key("no such value");
    let empty = ask!["SET", "", value, "NX"].at("x");
    let told = trial.chosen_refusal(&empty, "the key length is zero").await?;
    if told.0.payload == OK {
        trial.ask(&ask!["VDEL", "", value]).await?;
    }
    Ok(())
}

pub(super) async fn timestamp_fence(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "v"].token("10:0:verify"), OK).await?;
    trial.chosen_refusal(&ask!["SET", key, "w"].untimed(), "missing timestamp").await?;
    trial.chosen_refusal(&ask!["SET", key, "w"].untimed().token("x"), "missing timestamp").await?;
    let ahead = trial.stamp(3_600_000);
    let text = "the request timestamp is too far in the future; ensure that the client and broker system clocks are synchronized";
    trial.chosen_refusal(&ask!["SET", key, "w"].at(&ahead).token(&ahead), text).await?;
    trial.chosen_refusal(&ask!["SET", key, "w"].at(&ahead).token("9:0:verify"), text).await?;
    Ok(())
}

pub(super) async fn token_fence(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    for ask in [ask!["SET", key, "w"], ask!["DEL", key], ask!["VDEL", key, "v"]] {
        // There is not even a key.
        trial.chosen_refusal(&ask.token("x"), "malformed timestamp").await?;
    }
    Ok(())
}

pub(super) async fn fence_condition(trial: &mut Trial) -> Done {
    let key = trial.key("k");
    trial.expect(&ask!["SET", key, "v"].token("10:0:verify"), OK).await?;
    for ask in
        [ask!["SET", key, "w", "NX"], ask!["SET", key, "w", "NEX"], ask!["VDEL", key, "another"]]
    {
        trial.chosen_refusal(&ask, REQUIRED).await?;
    }
    Ok(())
}
