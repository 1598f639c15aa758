//! The library from outside, by behaviour.

#![expect(dead_code, reason = "not every test needs all of the support")]

mod devices;
mod support;
