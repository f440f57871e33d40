"""What a run may do on a phone: a policy, enforced between the loop and the device."""
