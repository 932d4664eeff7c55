//! The state store protocol over rumqttc.
