"""Streams that no setting was chosen by: does bocl with its defaults do as well as a network per task?"""
