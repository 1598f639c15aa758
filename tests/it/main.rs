//! The library from outside, by behaviour.

mod devices;
