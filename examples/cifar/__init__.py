"""CIFAR-10 as folders of pictures: the walk-through of docs/images.md."""
