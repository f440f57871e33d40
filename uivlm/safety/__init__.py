"""What a run may do on a phone: rules of a person, enforced between the loop and the device, whatever the model says."""
